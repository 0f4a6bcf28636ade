"""How much a query may ask for and is answered with: the row's bounds."""

from typing import Protocol

from dsh.capabilities.session_query_error import SessionQueryError


class Limits(Protocol):
    """What the row's config bounds."""

    @property
    def default_limit(self) -> int: ...
    @property
    def max_limit(self) -> int: ...
    @property
    def read_window_max(self) -> int: ...
    @property
    def persisted_inspect_concurrency(self) -> int: ...


def checked_limit(limit: int | None, limits: Limits) -> int:
    """How many to answer with.

    Raises:
        SessionQueryError: INVALID_LIMIT.
    """
    if limit is None:
        return limits.default_limit
    if type(limit) is not int or not 1 <= limit <= limits.max_limit:
        raise SessionQueryError(
            "INVALID_LIMIT", f"limit is from 1 to {limits.max_limit}, found {limit!r:.60}"
        )
    return limit
