"""What a replay gives from its record, so that the rows that would make it again keep still.

`dsh replay` with recorded tools touches no file and starts no process. A row that does either to tell the
model something at a step (files of instructions, hooks, the time) asks `is_given` first thing in its `apply`.
"""

from collections.abc import Mapping
from typing import Protocol

from dsh.kernel import Context, ServiceKey


class Recorded(Protocol):
    """A replay whose surroundings are the recorded ones."""

    def gives(self, source: Mapping[str, str]) -> None:
        """Messages whose `source` has these values come from the record, and nobody else makes any.

        Empty: a row that would have had tools keeps still.
        """


RECORDED: ServiceKey[Recorded] = ServiceKey("recorded")
"""Provided by the launcher for `dsh replay --tools recorded`, and by nobody else."""


def is_given(ctx: Context, **source: str) -> bool:
    """Whether what this row adds comes from a record; then the row is to do nothing at all.

    Args:
        ctx: of the row.
        source: what the sources of its messages have in common: `kind="plugin", plugin="…"`; nothing for a
            row that has tools and adds no messages of its own.
    """
    record = ctx.get(RECORDED)
    if record is None:
        return False
    record.gives(source)
    return True
