"""States of several units as stored rows, and how they are continued from a log (`spec/persistence.md` §8).

A row says up to which event its state goes. Rows are a cache: what does not fit is left out or folded anew.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from dsh.session.chunk_run import Entry
from dsh.session.projection.error import ProjectionError, UnusableRows
from dsh.session.projection.unit import Unit, fold, span
from dsh.session.value import MAX_SAFE_INT, JsonValue, safe_int

Units = Sequence[Unit[Any]]


class Row(msgspec.Struct, frozen=True):
    """The state of one unit after one event of a log."""

    ver: int
    """The unit's version."""
    seq: int
    """The last event that is in the state; -1 for none."""
    val: JsonValue
    """The state, frozen JSON."""


Rows = Mapping[str, Row]
"""By the key of the unit."""


class Snapshot(msgspec.Struct, frozen=True):
    """What clients see of a session, all at one moment."""

    as_of_seq: int
    """The last event that is in every value; -1 in an empty log."""
    values: Mapping[str, JsonValue]
    """By the key of the unit."""


class Restored(msgspec.Struct, frozen=True):
    """What `restore` came to."""

    snapshot: Snapshot
    rows: dict[str, Row]
    """States as of the last event, to be stored again."""
    failed: Mapping[str, Exception]
    """Units that raised, by key; they are in neither of the others."""


def checkpoint(unit: Unit[Any], state: Any, seq: int) -> Row:
    """The row of a state that goes up to event `seq`.

    Raises:
        InvalidState: the state is no JSON.
    """
    return Row(unit.version, seq, unit.dump(state))


def row_from_json(value: object) -> Row | None:
    """The row that a JSON value is, or None: whoever reads a cache leaves out what is none."""
    if not isinstance(value, dict) or "val" not in value:
        return None
    ver, seq = safe_int(value.get("ver")), safe_int(value.get("seq"))
    if ver is None or seq is None or ver < 0 or not -1 <= seq < MAX_SAFE_INT:
        return None
    return Row(ver, seq, value["val"])


def restore_floor(units: Units, rows: Rows) -> int | None:
    """The event to begin reading at, so that `restore` can continue the rows; None where nothing is folded.

    It is one below the first event that is missing, so that a log which became shorter than a row is noticed.
    """
    if not units:
        return None
    missing = []
    for unit in units:
        row = rows.get(unit.key)
        missing.append(0 if row is None or row.ver != unit.version else row.seq + 1)
    return max(min(missing) - 1, 0)


def view_checkpoint(units: Units, rows: Rows) -> Snapshot:
    """What clients see according to the rows alone; bad rows are left out.

    `as_of_seq` is the lowest event of those that are shown.
    """
    values: dict[str, JsonValue] = {}
    seqs = []
    for unit in units:
        row = rows.get(unit.key)
        if unit.view is None or row is None or row.ver != unit.version:
            continue
        try:
            values[unit.key] = unit.show(unit.load(row.val))
        except Exception:  # a bad row, or one that its unit cannot show: a cache may hold anything
            continue
        seqs.append(row.seq)
    return Snapshot(min(seqs, default=-1), values)


def restore(units: Units, rows: Rows, entries: Iterable[Entry], base: int) -> Restored:
    """Continue the rows with the events of a log from `base` on, or fold them from the beginning.

    A row is usable if its version is the unit's, it misses no event before `base`, it does not go further
    than the log, and its state is one. A unit that raises is left out, the others go on.

    Args:
        base: the seq of the first entry; where there is no entry, the length of the log at most.

    Raises:
        UnusableRows: a unit has no usable row and `base` is not 0: the log has to be read from there.
    """
    entries = list(entries)
    found = span(entries)
    stop = base if found is None else found[1]
    values: dict[str, JsonValue] = {}
    fresh: dict[str, Row] = {}
    failed: dict[str, Exception] = {}
    begun = [(unit, _continued(unit, rows.get(unit.key), base, stop)) for unit in units]
    if base and (unusable := [unit.key for unit, row in begun if row is None]):
        raise UnusableRows(unusable, base)
    for unit, row in begun:
        try:
            state = unit.init() if row is None else unit.load(row.val)
            state = fold(unit, entries, state, start=0 if row is None else row.seq + 1)
            value = unit.show(state)
            fresh[unit.key] = checkpoint(unit, state, stop - 1)
        except Exception as error:  # of a unit that anybody may have written
            failed[unit.key] = error
            continue
        if unit.view is not None:
            values[unit.key] = value
    return Restored(Snapshot(stop - 1, values), fresh, failed)


def _continued(unit: Unit[Any], row: Row | None, base: int, stop: int) -> Row | None:
    """The row, if the entries from `base` to `stop` continue it."""
    if row is None or row.ver != unit.version or not base - 1 <= row.seq < stop:
        return None
    try:
        unit.load(row.val)
    except ProjectionError:
        return None
    return row
