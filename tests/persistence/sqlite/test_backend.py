"""One session in the database: what is stored, seen, refused, mended and removed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsh.persistence.backend import Tail
from dsh.persistence.error import (
    OtherVersion,
    PackingUnsupported,
    RawLogUnsupported,
    SessionBusy,
    SessionCollision,
    SessionCorruption,
    SessionFileChanged,
)
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.sqlite.reader import StoredRows
from dsh.persistence.view import build_view
from dsh.session.chunk_run import ChunkRun, expand
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.value import freeze
from tests.persistence.sqlite.made import T0, by_hand, events_of, golden, log, stored, titled, view_of

FULL = SessionHeader(
    id="child/1",
    created_at=T0,
    cwd="/srv/app",
    parent_session="s",
    seed_length=0,
    origin="subagent",
    delegation_depth=2,
    agent_preset="coder",
)
BARE = SessionHeader(id="bare", created_at=0)
ODD = SessionHeader(id="half \ud83d", created_at=1, cwd="/srv/\udce9", agent_preset="\ud800")


def change(path: Path, statement: str, *values: object) -> None:
    with by_hand(path) as db:
        db.execute(statement, values)


# -- storing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["s.db", ":memory:"])
def test_the_golden_log_comes_back(tmp_path: Path, path: str) -> None:
    header, entries = golden(tmp_path)
    backend = SqliteBackend(path if path == ":memory:" else tmp_path / path)
    backend.append(header, entries[:6])
    backend.append(header, entries[6:])
    view = view_of(backend, header.id)

    assert view.header == header
    assert events_of(view) == [event.to_json() for event in expand(entries)]
    assert any(isinstance(entry, ChunkRun) for entry in view.entries())
    backend.close()


@pytest.mark.parametrize("header", [FULL, BARE, ODD], ids=["full", "bare", "odd"])
def test_every_field_of_a_header_comes_back_and_absent_ones_stay_absent(
    tmp_path: Path, header: SessionHeader
) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    backend.append(header, ())

    assert view_of(backend, header.id).header == header
    assert [listed.header for listed in backend.list().sessions] == [header]
    assert backend.ids(header.id[:4]) == [header.id] and backend.is_taken(header)
    backend.close()


def test_a_very_long_id_has_a_lock_too(tmp_path: Path) -> None:
    header = SessionHeader(id="🙂" * 400, created_at=0)
    backend = SqliteBackend(tmp_path / "s.db")
    backend.append(header, ())

    with pytest.raises(SessionBusy):
        SqliteBackend(tmp_path / "s.db").open(header.id)
    backend.close()


def test_a_stored_id_is_taken_and_a_second_creator_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path / "s.db", log())
    backend = SqliteBackend(path)

    assert backend.is_taken(log().header) and not backend.is_taken(log("other").header)
    with pytest.raises(SessionCollision, match="stored"):
        backend.append(log().header, log().entries())
    stored_again = backend.open("s")  # the refusal gave the lock back
    assert stored_again is not None and stored_again.next_seq == 4
    backend.close()


def test_a_batch_with_a_value_that_no_column_takes_stores_nothing(tmp_path: Path) -> None:
    session = log(ends=False)
    backend = SqliteBackend(tmp_path / "s.db")
    backend.append(session.header, session.entries())
    good = SessionEvent("x/y", 2, T0, freeze({}, "data"), ignorable=True)
    for bad in (
        SessionEvent("x/y", 3, 2**70, freeze({}, "data"), ignorable=True),
        SessionEvent("x/y", 3, T0, freeze({}, "data"), sources=(-1,), ignorable=True),
        SessionEvent("x/y", 2, T0, freeze({}, "data"), ignorable=True),
    ):
        with pytest.raises(Exception, match=r"column|a seq is|UNIQUE"):
            backend.append(session.header, [good, bad])
    assert view_of(backend, "s").stored_length == 2

    backend.append(session.header, [good])
    assert view_of(backend, "s").stored_length == 3
    backend.close()


# -- looking ---------------------------------------------------------------------------------------


def test_a_listing_reads_headers_and_one_bad_session_hides_no_other(tmp_path: Path) -> None:
    names = ["cwd", "good", "incarnation", "origin", "version"]
    path = stored(tmp_path / "s.db", *map(log, names), log("long", deltas=5000))
    change(path, "UPDATE sessions SET origin = 'other' WHERE id = 'origin'")
    change(path, "UPDATE sessions SET cwd = 'relative' WHERE id = 'cwd'")
    change(path, "UPDATE sessions SET incarnation = 'x' WHERE id = 'incarnation'")
    change(path, "UPDATE sessions SET version = 1 WHERE id = 'version'")
    backend = SqliteBackend(path)
    found = backend.list()

    good, long = sorted(found.sessions, key=lambda session: session.header.id)
    assert (good.header.id, good.path, good.place) == ("good", None, f"{path}#good")
    assert good.modified_ms == T0 + 3 and good.size < 1000 < long.size
    assert good.revision == backend.revision("good")
    assert {problem.place.partition("#")[2]: problem.reason.split(":")[0] for problem in found.problems} == {
        "cwd": "header",
        "incarnation": "header",
        "origin": "header",
        "version": found.problems[-1].reason.split(":")[0],
    }
    assert backend.ids() == [*names[:2], "incarnation", "long", *names[3:]]
    for name, error in [
        ("cwd", SessionCorruption),
        ("incarnation", SessionCorruption),
        ("version", OtherVersion),
    ]:
        with pytest.raises(error, match=f"#{name}"):
            backend.load(name)
    backend.close()


def test_a_listing_knows_the_last_title_of_each_session(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    backend = SqliteBackend(path)
    for session_id, titles in (("none", []), ("one", ["a"]), ("two", ["a", "名"]), ("bad", ["a", "b"])):
        header = SessionHeader(id=session_id, created_at=T0)
        data = [{"title": title, "messageSeqs": [], "source": {"kind": "user"}} for title in titles]
        backend.append(header, [SessionEvent("x/y", 0, T0, freeze({}, "data"), ignorable=True)])
        for seq, one in enumerate(data, 1):
            backend.append(header, [SessionEvent("session/title", seq, T0, freeze(one, "data"))])
    backend.close()
    change(path, "UPDATE events SET data = '{' WHERE session_id = 'bad' AND seq = 2")
    backend = SqliteBackend(path)

    found = backend.list()

    assert {one.header.id: one.title for one in found.sessions} == {
        "none": None, "one": "a", "two": "名", "bad": None,
    }  # fmt: skip
    assert found.problems == ()
    backend.close()


def test_a_null_where_a_header_field_is_absent_and_nowhere_else(tmp_path: Path) -> None:
    backend = SqliteBackend(stored(tmp_path / "s.db", log()))
    assert "delegationDepth" not in view_of(backend, "s").header.to_json()
    backend.close()


def test_the_revision_changes_with_each_write_and_with_nothing_else(tmp_path: Path) -> None:
    session = log()
    path = tmp_path / "s.db"
    backend = SqliteBackend(path)
    backend.append(session.header, session.entries()[:2])
    first = backend.revision("s")
    found = backend.load("s")
    assert found is not None and found.revision == first == SqliteBackend(path).revision("s")
    backend.append(log("other").header, log("other").entries())
    assert backend.revision("s") == first

    backend.append(session.header, session.entries(2))
    second = backend.revision("s")
    backend.release("s")
    assert backend.delete("s")
    backend.append(session.header, session.entries()[:2])

    assert len({first, second, backend.revision("s")}) == 3
    backend.close()


def test_figures_are_those_of_the_same_log_as_lines(tmp_path: Path) -> None:
    header, entries = golden(tmp_path)
    backend = SqliteBackend(tmp_path / "s.db")
    backend.append(header, entries)
    found = backend.figures(header.id)

    assert found is not None
    assert (found.encoding, found.rows, found.events) == ("sqlite", 15, 17)
    assert (found.packed_rows, found.packed_events) == (1, 3)
    assert found.text_bytes == (tmp_path / "golden.jsonl").stat().st_size
    assert found.unpacked_bytes > found.text_bytes > found.stored_bytes > 1000
    backend.close()


def test_there_is_no_text_and_nothing_to_pack(tmp_path: Path) -> None:
    backend = SqliteBackend(stored(tmp_path / "s.db", log()))
    with pytest.raises(RawLogUnsupported):
        backend.read_raw("s")
    with pytest.raises(PackingUnsupported):
        backend.pack("s")
    assert backend.read_raw("absent") is None and backend.pack("absent") is None
    backend.close()


# -- suffixes --------------------------------------------------------------------------------------


def seqs(tail: Tail | None) -> list[int]:
    assert tail is not None
    found: list[int] = []
    for entry in tail.entries:
        found += range(entry.seq0, entry.stop) if isinstance(entry, ChunkRun) else [entry["seq"]]
    return found


@pytest.mark.parametrize("batch", [1, 2, 3, 700, 5000])
def test_a_suffix_begins_exactly_there_also_within_a_packed_row(tmp_path: Path, batch: int) -> None:
    session = log(deltas=min(2500, batch * 40))
    backend = SqliteBackend(tmp_path / "s.db")
    for start in range(0, session.length, batch):
        entries = list(session.events(start, min(start + batch, session.length)))
        backend.append(session.header, entries)
    length = session.length
    for seq in sorted({0, 1, 2, 3, 4, length // 2, 1024, 1025, 1026, 1027, length - 3, length - 1, length}):
        if seq <= length:
            assert seqs(backend.load_from("s", seq)) == list(range(seq, length)), seq
    assert seqs(backend.load_from("s", length + 10_000)) == []
    tail = backend.load_from("s", 4)
    assert tail is not None
    found = [
        event
        for entry in tail.entries
        for event in (map(SessionEvent.to_json, entry.events()) if isinstance(entry, ChunkRun) else (entry,))
    ]
    assert found == events_of(session)[4:]
    backend.close()


def test_a_suffix_does_not_read_what_is_before_it(tmp_path: Path) -> None:
    path = stored(tmp_path / "s.db", log(deltas=3000))
    change(path, "UPDATE events SET data = '{' WHERE seq < 1000")
    backend = SqliteBackend(path)

    assert seqs(backend.load_from("s", 2100)) == list(range(2100, 3004))
    with pytest.raises(SessionCorruption):
        backend.load("s")
    backend.close()


def test_a_suffix_leaves_a_torn_tail_out_and_refuses_damage(tmp_path: Path) -> None:
    path = stored(tmp_path / "s.db", log("torn", deltas=20, ends=False), log("bad", deltas=20))
    change(path, "DELETE FROM events WHERE seq = 1")
    change(path, "INSERT INTO events VALUES ('torn', 40, 'x/y', 0, '{}', NULL, NULL, 1)")
    backend = SqliteBackend(path)

    assert seqs(backend.load_from("torn", 12)) == list(range(12, 22))
    assert seqs(backend.load_from("torn", 22)) == seqs(backend.load_from("torn", 1)) == []
    with pytest.raises(SessionCorruption, match="expected seq 1"):
        backend.load_from("bad", 1)
    backend.close()


# -- owners ----------------------------------------------------------------------------------------

OWN = """
import sys
from dsh.persistence.sqlite.backend import SqliteBackend
backend = SqliteBackend(sys.argv[1])
backend.open("s")
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_told_who_writes_the_session(tmp_path: Path) -> None:
    path = stored(tmp_path / "s.db", log(ends=False), log("free"))
    with subprocess.Popen(
        [sys.executable, "-c", OWN, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "open\n"
        backend = SqliteBackend(path)
        for act in (backend.open, backend.delete):
            with pytest.raises(SessionBusy, match=f"process {other.pid} on host") as caught:
                act("s")
            assert caught.value.code == "SESSION_BUSY" and f"{path}#s" in str(caught.value)
        assert backend.open("free") is not None  # the lock is the session's, not the database's
        assert view_of(backend, "s").closers
        other.kill()

    assert backend.open("s") is not None
    backend.close()


@pytest.mark.parametrize("path", ["s.db", ":memory:"])
def test_an_open_session_is_busy_until_it_rests_or_is_released(tmp_path: Path, path: str) -> None:
    backend = SqliteBackend(path if path == ":memory:" else tmp_path / path)
    backend.append(log().header, log().entries()[:2])
    for act in (backend.open, backend.delete):
        with pytest.raises(SessionBusy):
            act("s")

    backend.rest("s")
    backend.append(log().header, log().entries(2))
    backend.rest("s")
    assert backend.delete("s")
    assert backend.list().sessions == () and not backend.is_taken(log().header)
    backend.close()


def test_locks_leave_no_files(tmp_path: Path) -> None:
    stored(tmp_path / "s.db", *(log(f"s{number}") for number in range(20)))
    assert list((tmp_path / "s.db-owners").iterdir()) == []


# -- stale writers ---------------------------------------------------------------------------------


def test_a_stale_append_is_refused_without_damage(tmp_path: Path) -> None:
    session = log()
    path = tmp_path / "s.db"
    stale, other = SqliteBackend(path), SqliteBackend(path)
    stale.append(session.header, session.entries()[:2])
    stale.rest("s")
    assert other.open("s") is not None
    other.append(session.header, session.entries()[2:3])
    other.close()

    with pytest.raises(SessionFileChanged, match="3 events"):
        stale.append(session.header, session.entries(2))
    assert view_of(stale, "s").stored_length == 3

    stale.append(session.header, session.entries(3))  # what fits behind the real end is no conflict
    assert events_of(view_of(stale, "s")) == events_of(session)
    stale.close()


def test_an_append_that_does_not_begin_at_the_end_is_refused(tmp_path: Path) -> None:
    session = log()
    backend = SqliteBackend(tmp_path / "s.db")
    backend.append(session.header, session.entries()[:2])
    for start in (0, 1, 3):
        with pytest.raises(SessionFileChanged):
            backend.append(session.header, session.entries(start))
    assert view_of(backend, "s").stored_length == 2
    backend.close()


def test_an_append_to_a_log_of_known_state_costs_the_same_however_long_it_is(tmp_path: Path) -> None:
    session = log(ends=False)
    backend = SqliteBackend(tmp_path / "s.db")
    backend.append(session.header, session.entries())
    db = backend._database._db
    assert db is not None
    costs: list[int] = []
    for number in range(400):
        titled(session, 1, f"title {number:03}")
        steps: list[None] = []
        db.set_progress_handler(lambda steps=steps: steps.append(None), 1)  # type: ignore[misc]
        backend.append(session.header, session.entries(session.length - 1))
        db.set_progress_handler(None, 0)
        costs.append(len(steps))
    assert len(set(costs[1:])) == 1 and 0 < costs[1] < 1000
    backend.close()


def test_a_session_that_was_deleted_and_made_anew_is_not_continued(tmp_path: Path) -> None:
    session = log()
    path = tmp_path / "s.db"
    stale, other = SqliteBackend(path), SqliteBackend(path)
    stale.append(session.header, session.entries()[:2])
    stale.rest("s")
    assert other.delete("s")
    with pytest.raises(SessionFileChanged, match="deleted"):
        stale.append(session.header, session.entries(2))
    stale.rest("s")

    other.append(session.header, session.entries()[:2])
    other.close()
    with pytest.raises(SessionFileChanged, match="deleted"):
        stale.append(session.header, session.entries(2))
    stale.close()


# -- tears and repair ------------------------------------------------------------------------------


def opened(backend: SqliteBackend) -> StoredRows:
    found = backend.open("s")
    assert found is not None
    return found


TEARS = [
    ("22, 'step/end', 1, '{', NULL, NULL, NULL", "does not decode"),
    ("23, 'step/end', 1, '{}', NULL, NULL, NULL", "expected seq 22, found 23"),
    ("5, 'step/end', 1, '{}', NULL, NULL, NULL", "expected seq 22, found 5"),
    ("22, 'text-chunks', 1, '{}', NULL, NULL, 0", "does not decode"),
    ("22, 'x/y', 1, x'28b52ffd', NULL, NULL, 1", "does not decode"),
    ("22, 'x/y', 1, '{}', x'80', NULL, 1", "does not decode"),
    ("22, 'x/y', 1, '{}', NULL, '{', 1", "does not decode"),
]


@pytest.mark.parametrize(("row", "reason"), TEARS)
def test_a_bad_row_after_the_last_finished_turn_is_cut_off_and_kept_aside(
    tmp_path: Path, row: str, reason: str
) -> None:
    path = stored(tmp_path / "s.db", log(deltas=20, ends=False))
    change(path, f"INSERT INTO events VALUES ('s', {row})")
    backend = SqliteBackend(path)
    before = backend.revision("s")
    found = opened(backend)
    assert found.torn is not None and reason in found.torn.reason and found.torn.rows == 1
    assert f"from seq {found.torn.seq} on" in found.torn.extent
    view = build_view(found)
    assert view.stored_length == 22 and [event.type for event in view.events(22)] == ["step/end", "turn/end"]
    assert backend.revision("s") == before  # looking changes nothing

    backend.repair(found, view.closers, view.recovered)

    again = view_of(backend, "s")
    assert not again.needs_repair and events_of(again) == events_of(view)
    assert backend.revision("s") != before
    (aside,) = (tmp_path / "s.db-owners").glob(f"s.cut-{found.torn.seq}-*")
    (kept,) = map(json.loads, aside.read_text().splitlines())
    assert kept[0] == found.torn.seq and len(kept) == 7
    backend.append(view.header, [SessionEvent("turn/start", 24, T0, freeze({"turn": 2}, "data"))])
    backend.release("s")
    assert backend.delete("s") and not aside.exists()
    backend.close()


@pytest.mark.parametrize(("row", "reason"), TEARS)
def test_the_same_row_before_a_finished_turn_is_damage_and_stays(
    tmp_path: Path, row: str, reason: str
) -> None:
    path = stored(tmp_path / "s.db", log(deltas=20, ends=False))
    change(path, f"INSERT INTO events VALUES ('s', {row})")
    change(path, "INSERT INTO events VALUES ('s', 30, 'turn/end', 1, '{}', NULL, NULL, NULL)")
    backend = SqliteBackend(path)
    before = path.read_bytes()
    for act in (backend.load, backend.open, backend.figures):
        with pytest.raises(SessionCorruption, match="finished turn") as caught:
            act("s")
        assert reason in str(caught.value) and str(caught.value).startswith(f"{path}#s:")
    backend.close()
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET type = '' WHERE seq = 22",
        "UPDATE events SET data = 5 WHERE seq = 22",
        "UPDATE events SET source_event_seqs = 'x' WHERE seq = 22",
        "UPDATE events SET source_event_seqs = 5 WHERE seq = 22",
    ],
)
def test_a_column_of_the_wrong_kind_is_damage_even_at_the_end(tmp_path: Path, statement: str) -> None:
    session = log(deltas=20, ends=False)
    session.append("step/end", {"turn": 1, "step": 1})
    path = stored(tmp_path / "s.db", session)
    change(path, statement)
    backend = SqliteBackend(path)
    with pytest.raises(SessionCorruption):
        backend.load("s")
    assert backend.find("s") is not None and backend.ids() == ["s"] and len(backend.list().sessions) == 1
    assert backend.delete("s")
    backend.close()


def test_a_repair_of_something_that_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    path = stored(tmp_path / "s.db", log(ends=False))
    change(path, "INSERT INTO events VALUES ('s', 9, 'x/y', 1, '{}', NULL, NULL, 1)")
    for statement in (
        "DELETE FROM events WHERE seq = 9",
        "INSERT INTO events VALUES ('s', 10, 'x/y', 1, '{}', NULL, NULL, 1)",
        "UPDATE sessions SET revision = revision + 1",
    ):
        backend = SqliteBackend(path)
        found = opened(backend)
        view = build_view(found)
        with by_hand(path) as db:
            rows = db.execute("SELECT * FROM events").fetchall()
            db.execute(statement)
            changed = db.execute("SELECT * FROM events").fetchall()

        with pytest.raises(SessionFileChanged):
            backend.repair(found, view.closers, view.recovered)

        with by_hand(path) as db:
            assert db.execute("SELECT * FROM events").fetchall() == changed
            db.execute("DELETE FROM events")
            db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        backend.close()


def test_a_whole_log_that_only_lacks_its_end_gets_closers(tmp_path: Path) -> None:
    backend = SqliteBackend(stored(tmp_path / "s.db", log(ends=False)))
    found = opened(backend)
    view = build_view(found)
    backend.repair(found, view.closers, view.recovered)

    assert events_of(view_of(backend, "s")) == events_of(view) and view.length == 4
    assert not view_of(backend, "s").needs_repair
    backend.close()


@pytest.mark.parametrize("data", ['{"turn":1}', '{"turn":1,"turn":1}', ' {"turn" : 1.0 }\n'])
def test_json_is_read_whoever_wrote_it(tmp_path: Path, data: str) -> None:
    path = stored(tmp_path / "s.db", log())
    change(path, "UPDATE events SET data = ? WHERE seq = 0", data)
    backend = SqliteBackend(path)
    event: Any = next(view_of(backend, "s").events()).to_json()
    assert event["data"] == {"turn": 1}
    backend.close()


def test_locks_that_killed_processes_left_are_swept_away_and_held_ones_stay(tmp_path: Path) -> None:
    path = stored(tmp_path / "s.db", log())
    folder = tmp_path / "s.db-owners"
    (folder / "dead.lock").write_text("")
    (folder / "s.cut-5-01").write_text("kept")
    os.utime(folder / "dead.lock", (5, 5))
    owner = SqliteBackend(path)
    owner.open("s")

    assert SqliteBackend(path).sweep(4000) == 0
    assert SqliteBackend(path).sweep(6000) == 1
    assert sorted(file.name for file in folder.iterdir()) == ["s.cut-5-01", "s.lock"]
    assert SqliteBackend(path).sweep(1 << 50) == 0
    owner.close()
    assert SqliteBackend(tmp_path / "none.db").sweep(6000) == SqliteBackend(":memory:").sweep(6000) == 0
