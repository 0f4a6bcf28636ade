"""YAML values that know where they were written."""

from typing import Any, NamedTuple


class Mark(NamedTuple):
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Map(dict[str, Any]):
    """A mapping with the place of each key."""
