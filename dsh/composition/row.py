"""Rows and patches: what is allowed in them, checked where they are read."""

from dsh.composition.value import Map


class Row(Map):
    """One plugin line of a composition: its mapping, where it was written, and which layers touched it."""


class Patch(Map):
    """One element of a patch file."""
