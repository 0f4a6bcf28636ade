"""What can be wrong with a projection.

ProjectionError
├── InvalidState        a state that is no JSON, or JSON that is no state of its unit
├── UnusableRows        stored rows that the entries at hand do not continue; `keys` names their units
└── ProjectionConflict  two different units under one key
"""

from collections.abc import Sequence

from dsh.errors import DshError


class ProjectionError(DshError):
    """Base class."""


class InvalidState(ProjectionError):
    """A state and its unit do not fit together."""

    def __init__(self, key: str, problem: str) -> None:
        self.key = key
        super().__init__(f"projection {key}: {problem}", code="PROJECTION_INVALID_STATE")


class UnusableRows(ProjectionError):
    """The log has to be read from its beginning: a stored row is missing, bad, or not of this log."""

    def __init__(self, keys: Sequence[str], base: int) -> None:
        self.keys = tuple(keys)
        super().__init__(
            f"no stored state of {', '.join(keys)} can be continued from event {base}",
            code="PROJECTION_ROWS_UNUSABLE",
            hint="read the log from event 0",
        )


class ProjectionConflict(ProjectionError):
    """Two different units want one key."""

    def __init__(self, key: str, problem: str) -> None:
        self.key = key
        super().__init__(
            f"projection {key!r} is registered already: {problem}",
            code="PROJECTION_CONFLICT",
            hint="give the unit a key of its own",
        )
