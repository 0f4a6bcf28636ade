"""What a question about sessions can fail with. Every failure has its own code, all with one prefix."""

from typing import Literal

from dsh.errors import DshError

PREFIX = "SESSION_QUERY_"

Code = Literal[
    "ABORTED",
    "CORRUPT_SESSION",
    "EVENT_NOT_FOUND",
    "INDEX_FAILED",
    "INVALID_CONFIG",
    "INVALID_CURSOR",
    "INVALID_FILTER",
    "INVALID_LIMIT",
    "INVALID_LINEAGE",
    "INVALID_QUERY",
    "INVALID_SURFACE",
    "INVALID_WINDOW",
    "PERSISTENCE_FAILED",
    "SEARCH_DISABLED",
    "SESSION_NOT_FOUND",
    "SOURCE_CONFLICT",
    "STALE_CURSOR",
]


class SessionQueryError(DshError):
    """A question about sessions has no answer. `code` is `SESSION_QUERY_` and one of `Code`."""

    def __init__(self, code: Code, message: str, *, hint: str = "") -> None:
        self.reason: Code = code
        """The code without its prefix."""
        super().__init__(message, code=PREFIX + code, hint=hint)
