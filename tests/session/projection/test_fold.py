"""Stored rows: which can be continued, from where the log is read, and what becomes of bad ones."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.session.chunk_run import Entry
from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.projection.error import UnusableRows
from dsh.session.projection.fold import (
    Row,
    checkpoint,
    restore,
    restore_floor,
    row_from_json,
    view_checkpoint,
)
from dsh.session.projection.stats import STATS
from dsh.session.projection.title import TITLE
from dsh.session.projection.todos import TODOS
from dsh.session.projection.unit import Unit, fold
from dsh.session.value import EMPTY
from tests.session.build import session
from tests.session.test_laws import played, plays

UNITS: list[Unit[Any]] = [STATS, TITLE, TODOS]


def titled(*titles: str) -> Session:
    log = session()
    for title in titles:
        log.append("session/title", {"title": title, "messageSeqs": [], "source": {"kind": "user"}})
    return log


def rows_at(log: Session, length: int, units: list[Unit[Any]] = UNITS) -> dict[str, Row]:
    """What would have been stored when the log had that many events."""
    return {unit.key: checkpoint(unit, fold(unit, list(log.events(0, length))), length - 1) for unit in units}


@given(plays, st.integers(0, 100), st.integers(0, 100))
def test_rows_of_any_age_are_continued_to_what_the_whole_log_says(moves: Any, a: int, b: int) -> None:
    log = played(moves)
    rows = {**rows_at(log, min(a, log.length)), **rows_at(log, min(b, log.length), [STATS])}

    floor = restore_floor(UNITS, rows)
    assert floor is not None
    restored = restore(UNITS, rows, log.entries(floor), floor)

    assert restored.rows == rows_at(log, log.length)
    assert restored.snapshot.as_of_seq == log.length - 1
    assert restored.snapshot.values == {unit.key: unit.show(fold(unit, log.entries())) for unit in UNITS}
    assert restored == restore(UNITS, {}, log.entries(), 0)


def test_reading_begins_one_below_the_first_event_that_is_missing() -> None:
    log = titled("a", "b", "c", "d")

    assert restore_floor([], {}) is None
    assert restore_floor(UNITS, {}) == 0
    assert restore_floor([TITLE], rows_at(log, 0)) == 0
    assert restore_floor([TITLE], rows_at(log, 1)) == 0
    assert restore_floor([TITLE], rows_at(log, 3)) == 2
    assert restore_floor(UNITS, {**rows_at(log, 4), **rows_at(log, 2, [TITLE])}) == 1
    assert restore_floor(UNITS, rows_at(log, 3, [TITLE])) == 0  # the others have no row
    assert restore_floor([TITLE], {"title": Row(99, 3, "x")}) == 0


@pytest.mark.parametrize("length", [0, 1, 2])
def test_a_log_that_became_shorter_than_its_rows_is_noticed(length: int) -> None:
    log, shrunk = titled("a", "b", "c"), titled("a", "b", "c"[:0])
    rows = rows_at(log, 3, [TITLE])
    floor = restore_floor([TITLE], rows)
    assert floor == 2

    there = shrunk.entries(floor)[: max(length - floor, 0)]
    with pytest.raises(UnusableRows) as refused:
        restore([TITLE], rows, there, floor)

    assert refused.value.keys == ("title",)
    assert refused.value.hint
    assert restore([TITLE], rows, log.entries(0)[:length], 0).rows == rows_at(log, length, [TITLE])


@pytest.mark.parametrize(
    "row", [Row(0, 2, "c"), Row(1, 2, 7), Row(1, 9, "z"), Row(1, 0, "a"), None], ids=lambda row: repr(row)
)
def test_a_row_that_cannot_be_continued_costs_a_reading_from_the_start(row: Row | None) -> None:
    log = titled("a", "b", "c")
    rows = {} if row is None else {"title": row}

    with pytest.raises(UnusableRows):
        restore([TITLE], rows, log.entries(2), 2)

    assert restore([TITLE], rows, log.entries(), 0).snapshot.values == {"title": "c"}


def test_a_row_right_before_the_first_entry_is_continued() -> None:
    log = titled("a", "b", "c")

    restored = restore([TITLE], rows_at(log, 2, [TITLE]), log.entries(2), 2)

    assert restored.rows == rows_at(log, 3, [TITLE])


def test_a_unit_that_raises_is_left_out_and_the_others_go_on() -> None:
    def broken(_: int, __: Entry) -> int:
        raise RuntimeError("no")

    unit: Unit[int] = Unit(
        key="broken", version=0, state_type=int, init=int, apply=broken,
        types=frozenset({"session/title"}), view=int,
    )  # fmt: skip

    restored = restore([unit, TITLE], {}, titled("a").entries(), 0)

    assert restored.snapshot.values == {"title": "a"}
    assert restored.rows.keys() == {"title"}
    assert str(restored.failed["broken"]) == "no"


def test_what_clients_see_comes_from_the_rows_alone_without_the_bad_ones() -> None:
    log = titled("a", "b", "c")
    rows = {**rows_at(log, 3), **rows_at(log, 1, [TITLE])}

    seen = view_checkpoint(UNITS, {**rows, "todos": Row(2, 0, "bad"), "other": Row(1, 0, 1)})

    assert seen.values.keys() == {"title", "sessionStats"}
    assert seen.as_of_seq == 0  # the lowest of those shown
    assert view_checkpoint(UNITS, {"title": Row(2, 5, "x")}).values == {}
    assert view_checkpoint([], rows).as_of_seq == -1


def test_units_without_a_view_are_stored_and_not_shown() -> None:
    hidden: Unit[int] = Unit(
        key="hidden", version=0, state_type=int, init=int,
        apply=lambda n, _: n + 1, types=frozenset({"session/title"}),
    )  # fmt: skip

    restored = restore([hidden], {}, titled("a", "b").entries(), 0)

    assert restored.rows == {"hidden": Row(0, 1, 2)}
    assert restored.snapshot.values == {}


def test_an_empty_log_has_rows_before_its_first_event() -> None:
    restored = restore([TITLE], {}, [], 0)

    assert restored.rows == {"title": Row(1, -1, None)}
    assert restored.snapshot.as_of_seq == -1


@pytest.mark.parametrize(
    "value",
    [
        None, [], {}, {"ver": 1, "seq": 1}, {"ver": True, "seq": 1, "val": 1},
        {"ver": 1, "seq": -2, "val": 1},
        {"ver": -1, "seq": 1, "val": 1}, {"ver": "1", "seq": 1, "val": 1}, {"ver": 1, "seq": 2**60, "val": 1},
    ],
)  # fmt: skip
def test_what_is_no_row_is_none(value: Any) -> None:
    assert row_from_json(value) is None


def test_events_one_by_one_and_packed_are_continued_alike() -> None:
    event = SessionEvent("session/end-seed", 0, 0, EMPTY)
    assert restore([STATS], {}, [event], 0).rows["sessionStats"].seq == 0
