"""Changes single rows of the mounted tree, from code: makes, changes, moves and removes them.

Rows of the tree's own files change in memory; rows of an include are written into its file as well. What a
row does to itself (it ends, or is given another config while it runs) is kept in the same way.
"""

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from dsh.composition.grammar import rows_of
from dsh.composition.mount.entry import Entry
from dsh.composition.mount.overlay import Added, Replaced, Step, added, replaced, twin_of
from dsh.composition.mount.write_back import WriteBack
from dsh.composition.row import INCLUDE, Row
from dsh.composition.value import Expr, Map, Mark, Seq
from dsh.errors import CompositionError
from dsh.kernel import Context

RUNTIME = "<runtime>"
"""Stands for the file of rows that no file holds."""


class Editable(Protocol):
    """The tree whose rows are changed: what the loader offers."""

    steps: list[Step]
    owner_ctx: Context

    @property
    def entries(self) -> list[Entry]: ...

    def resolve(self, entry_id: str) -> Entry: ...

    async def change(
        self, steps: Sequence[Step], documents: Mapping[str, Seq], targets: Sequence[str]
    ) -> None:
        """Bring the tree to these steps and these documents of includes, or leave it as it was."""

    def writer(self, include: Entry) -> WriteBack: ...


async def create(tree: Editable, options: Mapping[str, Any], parent: str | None, position: int | None) -> str:
    """Add a row; answers its id, which is made up where the options hold none."""
    around = tree.resolve(parent) if parent is not None else None
    if around is not None and not around.carries_entries:
        raise CompositionError(f"{around.id} ({around.row.name}) carries no rows")
    include = _include_of(around) if around is not None else None
    row = _row(
        options, Mark(str(include.included.path) if include and include.included else RUNTIME, 1, 1), tree
    )
    if row.id is None:
        row["id"] = secrets.token_hex(4)
    group = around.row.id if around is not None and around is not include else None
    if include is None:
        if any(entry.id == row.id for entry in tree.entries):
            raise CompositionError(f"duplicate loader entry id: {row.id}", hint="give the row another id")
        await tree.change([*tree.steps, Added(row, group, position)], {}, [str(row.id)])
        return str(row.id)
    entry_id = f"{include.id}:{row.id}"
    document = added(_document(include), _as_written(row), group, position)
    await _change_document(tree, include, document, entry_id)
    return entry_id


async def update(
    tree: Editable,
    entry_id: str,
    options: Mapping[str, Any],
    *,
    parent: str | None,
    position: int | None,
    moves: bool,
) -> None:
    """Give a row other fields, another place, or both."""
    entry = tree.resolve(entry_id)
    include = _include_of(entry.parent)
    around = tree.resolve(parent) if parent is not None else None
    if include is None:
        if around is not None and (around.row.name == INCLUDE or _include_of(around) is not None):
            raise CompositionError(f"{entry_id} cannot move into an include: its rows are another file's")
        row = _row({**entry.row, **options}, entry.row.mark, tree)
        row.origin, row.patched, row.changes = entry.row.origin, entry.row.patched, entry.row.changes
        row.keys_at, row.values_at = entry.row.keys_at, entry.row.values_at
        steps: list[Step] = [*tree.steps]
        if moves:
            steps += [Replaced(entry.row, None), Added(row, around.row.id if around else None, position)]
        else:
            steps.append(Replaced(entry.row, row))
        await tree.change(steps, {}, [entry_id])
        return
    if moves:
        raise CompositionError(f"{entry_id} belongs to an include; edit its file to move it")
    written = _written(include, entry)
    changed = _changed(written, options)
    _row(changed, written.mark, tree)
    document = replaced(_document(include), lambda row: row is written, changed)
    await _change_document(tree, include, document, entry_id)


async def remove(tree: Editable, entry_id: str) -> None:
    """Take a row out, with everything inside it."""
    entry = tree.resolve(entry_id)
    include = _include_of(entry.parent)
    if include is None:
        await tree.change([*tree.steps, Replaced(entry.row, None)], {}, [])
        return
    written = _written(include, entry)
    document = replaced(_document(include), lambda row: row is written, None)
    await _change_document(tree, include, document, "")


def note(tree: Editable, entry: Entry, fields: Mapping[str, Any]) -> None:
    """Keep what a running row has become by itself: nothing is mounted or ended by this."""
    include = _include_of(entry.parent)
    row = _changed(entry.row, fields)
    assert isinstance(row, Row)
    base, entry.row = entry.row, row
    if include is None:
        tree.steps.append(Replaced(base, row))
        return
    try:
        written = _written(include, entry)
    except CompositionError:
        return
    document = replaced(_document(include), lambda found: found is written, _changed(written, fields))
    assert include.included is not None
    assert document is not None
    include.included = include.included._replace(document=document)
    tree.writer(include).schedule()


async def _change_document(tree: Editable, include: Entry, document: Seq | None, target: str) -> None:
    assert document is not None
    await tree.change(tree.steps, {include.id: document}, [target] if target else [])
    tree.writer(tree.resolve(include.id)).schedule()


def _include_of(entry: Entry | None) -> Entry | None:
    while entry is not None and entry.included is None:
        entry = entry.parent
    return entry


def _document(include: Entry) -> Seq:
    assert include.included is not None
    return include.included.document


def _written(include: Entry, entry: Entry) -> Map:
    """The row as the include's file holds it.

    Raises:
        CompositionError: it has no id, or comes from the include's patches.
    """
    found: list[Map] = []

    def is_it(row: Map) -> bool:
        if entry.row.id is not None and row.get("id") == entry.row.id:
            found.append(row)
        return bool(found)

    replaced(_document(include), is_it, None)
    if not found:
        raise CompositionError(f"{entry.id} does not stand in the file of {include.id} under its id")
    return found[0]


def _row(fields: Mapping[str, Any], mark: Mark, tree: Editable) -> Row:
    """A row of these fields, checked like one from a file.

    Raises:
        CompositionError: it breaks a rule of rows.
    """
    plain = Map(mark)
    plain.update((key, _marked(value, mark)) for key, value in fields.items())
    listed = Seq(mark)
    listed.append(plain)
    made: list[Row] = rows_of(listed, tree.owner_ctx.logger.warning)
    return made[0]


def _changed(row: Map, fields: Mapping[str, Any]) -> Map:
    """The row with other fields."""
    twin = twin_of(row)
    twin.update((key, _marked(value, row.mark)) for key, value in fields.items())
    return twin


def _as_written(row: Row) -> Map:
    plain = Map(row.mark)
    plain.update(row)
    return plain


def _marked(value: Any, mark: Mark) -> Any:
    """JSON data and expressions as values that have a place."""
    if isinstance(value, Map | Seq | Expr):
        return value
    if isinstance(value, Mapping):
        made = Map(mark)
        made.update((key, _marked(item, mark)) for key, item in value.items())
        return made
    if isinstance(value, list | tuple):
        listed = Seq(mark)
        listed.extend(_marked(item, mark) for item in value)
        return listed
    return value
