"""Why a search gave no result."""

from typing import Literal

from dsh.tools.error import ToolError

SearchErrorCode = Literal[
    "SEARCH_ABORTED", "SEARCH_INVALID_PATTERN", "SEARCH_RAW_OUTPUT_OVERFLOW", "SEARCH_FAILED"
]


class SearchError(ToolError):
    """A search that did not happen, or whose result cannot be used."""

    def __init__(self, code: SearchErrorCode, message: str) -> None:
        super().__init__(message, code=code)
