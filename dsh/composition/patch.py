"""Applies patch layers to rows: the original's grammar and our extensions, in one pass."""

from typing import NamedTuple

from dsh.composition.row import Patch


class Layer(NamedTuple):
    """The patches of one source."""

    label: str
    """Bundle name, absolute path of a user's file, or `<launcher>`."""
    patches: list[Patch]


class Warned(NamedTuple):
    """A patch that found nothing to change. `str()` gives `[<layer>] patch: entry "x" not found …`."""

    label: str
    text: str

    def __str__(self) -> str:
        return f"[{self.label}] {self.text}"
