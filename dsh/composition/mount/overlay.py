"""What was changed in the rows while the program runs, kept apart from the files that the rows come from.

A change is kept over edits of the files for as long as they say the same of its row as when it was made.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from dsh.composition.row import Row
from dsh.composition.same import same_row
from dsh.composition.value import Map, Mark, Seq


class Replaced(NamedTuple):
    """A row says something else, or is gone."""

    base: Row
    """What it said."""
    row: Row | None

    def over(self, rows: Seq) -> Seq:
        base = self.base
        found = replaced(rows, lambda row: isinstance(row, Row) and same_row(base, row), self.row)
        return rows if found is None else found


class Added(NamedTuple):
    """A row that no file knows."""

    row: Row
    parent: str | None
    """The group it is in; None for the top of the tree."""
    position: int | None
    """None for the end."""

    def over(self, rows: Seq) -> Seq:
        if any(row.get("id") == self.row.id for row in every(rows)):
            return rows
        found = added(rows, self.row, self.parent, self.position)
        return rows if found is None else found


Step = Replaced | Added


def over(steps: Iterable[Step], rows: list[Row]) -> list[Row]:
    """The rows after these steps; those given stay as they are."""
    made = _listed(rows)
    for step in steps:
        made = step.over(made)
    return made


def every(rows: Iterable[Map]) -> "Iterable[Map]":
    """Every row of a list and of the groups in it."""
    for row in rows:
        yield row
        yield from every(children(row))


def children(row: Map) -> list[Map]:
    """The rows inside a group, as they are written."""
    if isinstance(row, Row):
        return list(row.children)
    if row.get("group") is not True and row.get("name") != "cordis:group":
        return []
    config = row.get("config")
    return [child for child in config if isinstance(child, Map)] if isinstance(config, list) else []


def replaced(rows: Seq, wanted: Callable[[Map], bool], by: Map | None) -> Seq | None:
    """The list with the first row that is wanted exchanged, or taken out; None where there is none."""
    for position, row in enumerate(rows):
        if wanted(row):
            made = _listed(rows)
            made[position : position + 1] = [] if by is None else [by]
            return made
        if children(row) and (inside := replaced(row["config"], wanted, by)) is not None:
            made = _listed(rows)
            made[position] = _with(row, inside)
            return made
    return None


def added(rows: Seq, row: Map, parent: str | None, position: int | None) -> Seq | None:
    """The list with a row more, at the top or in a group; None where there is no such group."""
    if parent is None:
        made = _listed(rows)
        made.insert(len(made) if position is None else position, row)
        return made
    for at, group in enumerate(rows):
        inside: Seq | None = None
        if group.get("id") == parent:
            inside = added(_listed(children(group)), row, None, position)
        elif children(group):
            inside = added(group["config"], row, parent, position)
        if inside is not None:
            made = _listed(rows)
            made[at] = _with(group, inside)
            return made
    return None


def _listed(rows: list[Row] | list[Map] | Seq) -> Seq:
    made = Seq(rows.mark if isinstance(rows, Seq) else Mark("<runtime>", 1, 1))
    made.extend(rows)
    return made


def _with(row: Map, config: Seq) -> Map:
    """The same row with other rows inside."""
    twin = twin_of(row)
    twin["config"] = config
    return twin


def twin_of(row: Map) -> Map:
    """A copy of a row with its places and what the layers wrote on it; the values are shared."""
    twin = type(row)(row.mark)
    twin.update(row)
    twin.keys_at, twin.values_at = dict(row.keys_at), dict(row.values_at)
    if isinstance(row, Row) and isinstance(twin, Row):
        for name in Row.__slots__:
            setattr(twin, name, getattr(row, name))
    return twin
