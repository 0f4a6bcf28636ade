"""Entries as rows of table `events`, and what a row that no writer makes is answered with."""

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dsh.persistence.sqlite.record import (
    MAX_MEMBERS,
    MAX_PACKED_BYTES,
    DamagedRow,
    Row,
    count_of,
    read_row,
    rows_of,
    start_of,
)
from dsh.persistence.sqlite.schema import Text
from dsh.session.chunk_run import ChunkRun, expand
from dsh.session.error import InvalidEvent, SessionError
from dsh.session.event import SessionEvent
from dsh.session.value import decode_strict, encode, freeze
from tests.persistence.sqlite.made import golden


def run_of(*texts: str, seq0: int = 5) -> ChunkRun:
    return ChunkRun("text", seq0, (100, 100 + len(texts) - 1), (1, 1, 0), [1] * (len(texts) - 1), list(texts))


def as_selected(row: Row) -> tuple[Any, ...]:
    """A row as the connection gives it back."""
    seq, kind, time, *rest = row
    return seq, Text(kind), time, *(Text(v.encode()) if isinstance(v, str) else v for v in rest)


def back(rows: list[Row]) -> list[dict[str, Any]]:
    """The events that rows stand for."""
    events: list[dict[str, Any]] = []
    for row in rows:
        record, line = read_row(as_selected(row))
        if isinstance(record, ChunkRun):
            events += [json.loads(encode(event.to_json())) for event in record.events()]
        else:
            assert decode_strict(line) == record
            events.append(dict(record))
    return events


def plain(entries: list[Any]) -> list[dict[str, Any]]:
    return [json.loads(encode(event.to_json())) for event in expand(entries)]


def test_the_golden_log_as_rows(tmp_path: Path) -> None:
    _, entries = golden(tmp_path)
    rows = list(rows_of(entries, packs=True))

    assert len(rows) == 15
    (packed,) = (row for row in rows if row.ignorable == 0)
    assert packed.seq == 8 and packed.type == b"text-chunks"
    assert packed.sources is None and packed.surface is None
    assert isinstance(packed.data, str) and list(json.loads(packed.data)) == [
        "turn",
        "step",
        "index",
        "dt",
        "texts",
    ]
    assert [row.seq for row in rows if row.surface is not None]
    assert back(rows) == plain(entries)


def test_without_packing_every_event_has_its_row(tmp_path: Path) -> None:
    _, entries = golden(tmp_path)
    rows = list(rows_of(entries, packs=False))

    assert [row.seq for row in rows] == list(range(17))
    assert {row.ignorable for row in rows} == {None}
    assert back(rows) == plain(entries)


@pytest.mark.parametrize(
    ("members", "sizes"),
    [
        (2, [1, 1]),
        (3, [3]),
        (1024, [1024]),
        (1025, [1024, 1]),
        (1026, [1024, 1, 1]),
        (1027, [1024, 3]),
        (2048, [1024, 1024]),
    ],
)
def test_a_packed_row_has_3_to_1024_members(members: int, sizes: list[int]) -> None:
    run = run_of(*(f"t{number}" for number in range(members)))
    rows = list(rows_of([run], packs=True))

    records = [read_row(as_selected(row))[0] for row in rows]
    assert [count_of(record) for record in records] == sizes
    assert start_of(records[0]) == 5
    assert back(rows) == plain([run])


def text_size(row: Row) -> int:
    data = (
        row.data.encode() if isinstance(row.data, str) else zstandard.ZstdDecompressor().decompress(row.data)
    )
    return len(data)


def test_a_packed_row_holds_the_most_that_one_mebibyte_takes() -> None:
    fixed = len('{"turn":1,"step":1,"index":0,"dt":[1,1],"texts":["","",""]}')
    exact = run_of("a" * 500_000, "b" * 500_000, "c" * (MAX_PACKED_BYTES - fixed - 1_000_000))
    (row,) = rows_of([exact], packs=True)
    assert text_size(row) == MAX_PACKED_BYTES and row.ignorable == 0
    assert back([row]) == plain([exact])

    larger = run_of("a" * 500_000, "b" * 500_000, "c" * (MAX_PACKED_BYTES - fixed - 999_999))
    assert [row.ignorable for row in rows_of([larger], packs=True)] == [None, None, None]


def test_where_three_do_not_fit_the_first_is_single_and_the_rest_is_tried_again() -> None:
    run = run_of("a" * MAX_PACKED_BYTES, "b", "c", "d", "é" * 400_000, "\0" * 180_000, "f", "g", "h")
    rows = list(rows_of([run], packs=True))

    assert [row.ignorable for row in rows] == [None, 0, None, 0]
    assert [count_of(read_row(as_selected(row))[0]) for row in rows] == [1, 4, 1, 3]
    assert all(text_size(row) <= MAX_PACKED_BYTES for row in rows if row.ignorable == 0)
    assert back(rows) == plain([run])


texts = st.text(st.characters(exclude_categories=()), max_size=4)


@given(st.lists(st.tuples(texts, st.integers(-5, 5)), min_size=1, max_size=60), st.integers(1, 9))
def test_any_run_comes_back_however_it_is_cut(members: list[tuple[str, int]], width: int) -> None:
    pieces = [
        text * 40_000 * (width if index % 7 == 0 else 0) or text for index, (text, _) in enumerate(members)
    ]
    dt = [gap for _, gap in members[1:]]
    run = ChunkRun("tool-call", 3, (50, 50 + sum(dt)), (1, 2, 0), dt, pieces, "c1", "ls")
    rows = list(rows_of([run], packs=True))

    assert all(text_size(row) <= MAX_PACKED_BYTES for row in rows if row.ignorable == 0)
    records = [read_row(as_selected(row))[0] for row in rows]
    assert back(rows) == plain([run])
    assert [start_of(record) for record in records] == [row.seq for row in rows]


def event(data: Any, **more: Any) -> SessionEvent:
    return SessionEvent("x/y", 0, 7, freeze(data, "data"), ignorable=True, **more)


def test_a_long_value_is_compressed_from_4096_bytes_on() -> None:
    short, long = (next(rows_of([event("a" * length)], packs=True)) for length in (4093, 4094))

    assert isinstance(long.data, bytes) and zstandard.frame_content_size(long.data) == 4096
    assert isinstance(short.data, str) and len(short.data) == 4095
    assert back([short, long]) == plain([event("a" * 4093), event("a" * 4094)])


def test_an_ignorable_event_is_1_and_its_type_may_be_that_of_a_packed_row() -> None:
    odd = SessionEvent("text-chunks", 0, 7, freeze({"texts": ["a"]}, "data"), ignorable=True)
    (row,) = rows_of([odd], packs=True)

    assert row.ignorable == 1
    assert back([row]) == plain([odd])


def test_half_a_surrogate_pair_survives() -> None:
    odd = SessionEvent("x/\ud800", 0, 7, freeze({"k\udfff": "\ud83d"}, "data"), ignorable=True)
    rows = list(rows_of([odd, run_of("a", "\ud83d", "b", seq0=1)], packs=True))

    assert back(rows) == plain([odd, run_of("a", "\ud83d", "b", seq0=1)])


GOOD = (0, Text(b"turn/start"), 5, Text(b'{"turn":1}'), None, None, None)
RUN = Text(b'{"turn":1,"step":1,"index":0,"dt":[1,1],"texts":["a","b","c"]}')
PACKED = (0, Text(b"text-chunks"), 5, RUN, None, None, 0)


def changed(row: tuple[Any, ...], **columns: Any) -> tuple[Any, ...]:
    names = ("seq", "type", "time", "data", "sources", "surface", "ignorable")
    return tuple(columns.get(name, value) for name, value in zip(names, row, strict=True))


def test_the_rows_that_the_next_tests_damage_are_good() -> None:
    assert count_of(read_row(GOOD)[0]) == 1
    assert count_of(read_row(PACKED)[0]) == 3


@pytest.mark.parametrize(
    "columns",
    [
        {"seq": -1},
        {"seq": 1.5},
        {"type": Text(b"")},
        {"type": Text(b"\xff")},
        {"type": b"turn/start"},
        {"time": Text(b"5")},
        {"data": 5},
        {"data": None},
        {"sources": Text(b"abc")},
        {"sources": 5},
        {"surface": b"abc"},
        {"ignorable": 2},
    ],
)
def test_a_column_of_the_wrong_kind_is_damage_outright(columns: dict[str, Any]) -> None:
    with pytest.raises(DamagedRow):
        read_row(changed(GOOD, **columns))


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (GOOD, {"data": Text(b"{")}),
        (GOOD, {"data": Text(b"")}),
        (GOOD, {"data": Text(b"\xff")}),
        (GOOD, {"data": b"{}"}),
        (GOOD, {"data": zstandard.compress(b"{}")[:-1]}),
        (GOOD, {"data": zstandard.compress(b"{}") + b"x"}),
        (GOOD, {"data": zstandard.compress(b"{}") * 2}),
        (GOOD, {"sources": b"\x80"}),
        (GOOD, {"surface": Text(b"append")}),
        (PACKED, {"type": Text(b"other-chunks")}),
        (PACKED, {"sources": b""}),
        (PACKED, {"surface": Text(b'"append"')}),
        (PACKED, {"data": Text(b"[]")}),
        (PACKED, {"data": Text(RUN.replace(b'"dt":[1,1]', b'"dt":[1]'))}),
        (PACKED, {"data": Text(b'{"turn":1,"step":1,"index":0,"dt":[1],"texts":["a","b"]}')}),
        (PACKED, {"data": Text(b" " * MAX_PACKED_BYTES + RUN)}),
        (PACKED, {"data": zstandard.compress(b" " * MAX_PACKED_BYTES + RUN)}),
    ],
)
def test_content_that_does_not_decode_is_a_defect_of_its_row(
    row: tuple[Any, ...], columns: dict[str, Any]
) -> None:
    with pytest.raises(SessionError):
        read_row(changed(row, **columns))


def test_more_members_than_a_packed_row_holds_are_a_defect() -> None:
    many = run_of(*("t",) * (MAX_MEMBERS + 1)).to_row()["data"]
    with pytest.raises(InvalidEvent, match="3 to 1024"):
        read_row(changed(PACKED, data=Text(encode(many))))


def test_a_small_blob_that_decodes_to_gigabytes_is_refused_in_little_memory() -> None:
    bomb = zstandard.ZstdCompressor(level=3).compress(b"\0" * (64 << 20))
    with pytest.raises(InvalidEvent, match="decodes to more than"):
        read_row(changed(PACKED, data=bomb))
