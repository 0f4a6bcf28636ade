"""Both storages give the same log back, whatever the batches; any change of a row is noticed or harmless."""

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.persistence.error import PersistenceError
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.view import build_view
from dsh.session.chunk import Chunk
from dsh.session.log import Session
from tests.persistence.sqlite.made import by_hand, events_of, log, stored, view_of
from tests.persistence.test_laws import chunks, log_of


@given(
    st.lists(chunks, max_size=40),
    st.lists(st.integers(-(2**40), 2**40), max_size=44),
    st.sets(st.integers(1, 43)),
    st.booleans(),
    st.integers(0, 50),
)
@settings(max_examples=60)
def test_any_batches_give_what_the_other_storage_gives(
    tmp_path_factory: pytest.TempPathFactory,
    pieces: list[Chunk],
    times: list[int],
    cuts: set[int],
    packs: bool,
    seq: int,
) -> None:
    session = log_of(pieces, times)
    lines = JsonlBackend(tmp_path_factory.mktemp("law"), encoding="plain", pack_chunks=packs)
    rows = SqliteBackend(":memory:", pack_chunks=packs)
    whole = Session(session.header)
    stops = sorted(cut for cut in cuts if cut < session.length)
    for start, stop in zip([0, *stops], [*stops, session.length], strict=True):
        for event in session.events(start, stop):
            whole.load(event)
        lines.append(session.header, whole.entries(start))
        rows.append(session.header, whole.entries(start))

    from_lines, from_rows = lines.load(session.id), rows.load(session.id)
    assert from_lines is not None and from_rows is not None
    one, other = build_view(from_lines), build_view(from_rows)
    assert other.header == one.header
    assert list(map(len_of, other.entries())) == list(map(len_of, one.entries()))
    assert events_of(other) == events_of(one) == events_of(session)
    assert lines.load_from(session.id, seq) is not None
    assert [as_json(entry) for entry in rows_of_tail(rows, session.id, seq)] == events_of(session)[seq:]
    found, expected = rows.figures(session.id), lines.figures(session.id)
    assert found is not None and expected is not None
    for name in ("rows", "events", "packed_rows", "packed_events", "text_bytes", "unpacked_bytes"):
        assert getattr(found, name) == getattr(expected, name), name
    lines.close()
    rows.close()


def len_of(entry: object) -> int:
    return len(entry) if hasattr(entry, "__len__") else 1


def rows_of_tail(backend: SqliteBackend, session_id: str, seq: int) -> list[object]:
    tail = backend.load_from(session_id, seq)
    assert tail is not None
    return [
        event
        for entry in tail.entries
        for event in (list(entry.events()) if hasattr(entry, "events") else [entry])
    ]


def as_json(event: object) -> object:
    return event.to_json() if hasattr(event, "to_json") else event


DELTAS = log(deltas=8)
_made: dict[str, bytes] = {}


def copy_of(session: Session, factory: pytest.TempPathFactory) -> Path:
    """A database of its own with this session; made once, since each one is synced to the disk."""
    path = factory.mktemp("law") / "s.db"
    if session.id not in _made:
        _made[session.id] = stored(path, session).read_bytes()
    path.write_bytes(_made[session.id])
    path.chmod(0o600)
    return path


values = st.one_of(
    st.none(), st.integers(-2, 40), st.floats(), st.text(max_size=3), st.binary(max_size=12), st.just("{}")
)


@given(
    st.integers(0, 13),
    st.sampled_from(["seq", "type", "time", "data", "source_event_seqs", "surface_op", "ignorable"]),
    values,
)
@settings(max_examples=150)
def test_any_value_in_any_column_gives_a_log_or_a_named_refusal(
    tmp_path_factory: pytest.TempPathFactory, row: int, column: str, value: object
) -> None:
    path = copy_of(DELTAS, tmp_path_factory)
    with by_hand(path) as db:
        try:
            db.execute(f"UPDATE events SET {column} = ? WHERE seq = ?", (value, row))
        except sqlite3.IntegrityError:
            return
    backend = SqliteBackend(path)
    for seq in (0, 5):
        try:
            backend.load_from("s", seq)
            view = view_of(backend, "s")
        except PersistenceError:
            continue
        assert [event.seq for event in view.events()] == list(range(view.length))
    backend.close()


@given(st.sampled_from(["id", "version", "created_at", "cwd", "seed_length", "origin", "revision"]), values)
@settings(max_examples=80)
def test_any_value_in_a_header_gives_a_header_or_a_named_refusal(
    tmp_path_factory: pytest.TempPathFactory, column: str, value: object
) -> None:
    path = copy_of(DELTAS, tmp_path_factory)
    with by_hand(path) as db:
        try:
            db.execute(f"UPDATE sessions SET {column} = ?", (value,))
        except sqlite3.IntegrityError:
            return
    backend = SqliteBackend(path)
    listing = backend.list()
    assert len(listing.sessions) + len(listing.problems) == 1
    for session_id in backend.ids():
        try:
            backend.load(session_id)
        except PersistenceError as error:
            assert str(path) in str(error)
    backend.close()
