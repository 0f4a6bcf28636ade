"""Rows and patches as data. What may stand in them is judged by `grammar.py`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dsh.composition.value import Expr, Map, Mark, MarkedError

GROUP = "cordis:group"
INCLUDE = "cordis:include"


class RowError(MarkedError):
    """A row, a patch or a profile is written wrongly."""


class Change(NamedTuple):
    """One patch that reached a row."""

    layer: str
    """Label of the layer it stands in."""
    mark: Mark
    """Where the patch begins."""
    fields: tuple[str, ...]
    """What it says of the row, in its order: names of fields, `merge`, `insert` for rows added to a group."""


class Row(Map):
    """One plugin line of a composition: its mapping, where it was written, and which layers touched it."""

    __slots__ = ("changes", "dropped", "origin", "patched")

    def __init__(self, mark: Mark) -> None:
        super().__init__(mark)
        self.origin = ""
        """Label of the layer that brought the row."""
        self.patched: list[str] = []
        """Labels of later layers that changed it or, for a group, something inside it."""
        self.changes: list[Change] = []
        """The patches that named this very row, in order, also those that changed nothing."""
        self.dropped: list[tuple[str, tuple[str, ...]]] = []
        """(layer, path): keys of `config` that an earlier layer set and this layer's replacement lost."""

    @property
    def id(self) -> str | None:
        return self.get("id")

    @property
    def name(self) -> str:
        return str(self["name"])

    @property
    def config(self) -> Any:
        return self.get("config")

    @property
    def disabled(self) -> bool | Expr | None:
        """An expression is evaluated by the loader, once a composition."""
        return self.get("disabled")

    @property
    def is_optional(self) -> bool:
        """Whether the rest may start without it: `optional: true`."""
        return self.get("optional") is True

    @property
    def is_group(self) -> bool:
        """Whether patches see into the row: `group: true`."""
        return self.get("group") is True

    @property
    def carries_rows(self) -> bool:
        return self.is_group or self.name == GROUP

    @property
    def children(self) -> "list[Row]":
        """The rows inside a group; empty for every other row."""
        if self.carries_rows and isinstance(self.config, list):
            return [child for child in self.config if isinstance(child, Row)]
        return []

    def walk(self) -> "Iterator[Row]":
        """The row and all rows inside it."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def folder(self) -> Path:
        """The folder of the file the row is written in: what a relative name or `here()` starts from."""
        return Path(self.mark.file).absolute().parent

    @property
    def label(self) -> str:
        """How messages call the row."""
        return f"{self.id or '(no id)'} ({self.name})"


class Patch(Map):
    """One element of a patch file."""
