"""What every storage of sessions does alike (`spec/persistence.md` §2, §3)."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dsh.persistence.backend import Backend, Listing
from dsh.persistence.error import PersistenceError, SessionBusy, SessionCollision, SessionNotFound
from dsh.persistence.fork import fork_stored
from dsh.persistence.stored import Stored
from dsh.persistence.tail import read_tail
from dsh.persistence.view import LogView, build_view
from dsh.session.chunk_run import Entry, expand
from dsh.session.error import SessionForkError
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.value import json_equal
from dsh.session.verify.log import verify
from tests.contract.storages import ALL, SHARED, Storage, event, storage
from tests.corpus import CORPUS, needs_corpus
from tests.persistence.golden import TEXT, view_of

HEAD = SessionHeader(id="demo.2", created_at=1_700_000_000_000, cwd="/srv/app", delegation_depth=0)


@pytest.fixture(params=ALL)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return storage(request.param, tmp_path / "store")


@pytest.fixture(params=SHARED)
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    return storage(request.param, tmp_path / "store")


@pytest.fixture
def golden(tmp_path: Path) -> LogView:
    path = tmp_path / "golden.jsonl"
    path.write_bytes(TEXT)
    return view_of(path)


def turn(seq: int, number: int = 1) -> list[Entry]:
    return [event(seq, turn=number), event(seq + 1, "turn/end", number, reason={"kind": "completed"})]


def put(store: Storage, header: SessionHeader, *batches: list[Entry]) -> None:
    backend = store.open()
    for batch in batches:
        backend.append(header, batch)
    backend.release(header.id)


def got(backend: Backend[Any], session_id: str) -> LogView:
    stored: Stored | None = backend.load(session_id)
    assert stored is not None
    return build_view(stored)


def as_json(view: LogView, start: int = 0) -> list[object]:
    return [event.to_json() for event in view.events(start)]


def test_nothing_is_stored_at_first(store: Storage) -> None:
    backend = store.open()
    for look in (backend.load, backend.find, backend.revision, backend.figures, backend.open):
        assert look("x") is None
    assert backend.load_from("x", 0) is None and not backend.delete("x")
    assert (backend.ids(), backend.list()) == ([], Listing((), ()))
    assert not backend.is_taken(HEAD)
    backend.close()


def test_exactly_the_appended_events_come_back(store: Storage, golden: LogView) -> None:
    entries = golden.entries()
    put(store, golden.header, entries[:3], entries[3:7], entries[7:])
    backend = store.open()
    view = got(backend, golden.header.id)
    assert view.header == golden.header and view.stored_length == golden.length
    assert as_json(view) == as_json(golden)
    assert backend.is_taken(golden.header) and backend.find(golden.header.id)
    backend.close()


def test_rare_envelopes_come_back_too(store: Storage) -> None:
    events: list[Entry] = [
        SessionEvent("x.y/unknown", 0, -5, {"a": [1, None, "é\u2028🙂"], "b": {}}, ignorable=True),
        SessionEvent(
            "session/title", 1, 0, {"title": "x" * 9000, "messageSeqs": [], "source": {"kind": "user"}}
        ),
        *turn(2),
    ]
    put(store, HEAD, events)
    backend = store.open()
    assert json_equal(as_json(got(backend, HEAD.id)), [event.to_json() for event in expand(events)])
    backend.close()


def test_all_of_a_header_comes_back(store: Storage) -> None:
    header = SessionHeader(
        id="ünï/..\\🙂 x",
        created_at=7,
        cwd=None,
        parent_session="parent",
        seed_length=0,
        origin="subagent",
        delegation_depth=3,
        agent_preset="main",
    )
    put(store, header, turn(0))
    backend = store.open()
    assert got(backend, header.id).header == header
    assert [stored.header for stored in backend.list().sessions] == [header]
    assert backend.ids("ünï") == [header.id]
    backend.close()


def test_a_listing_has_each_session_once_and_says_when_it_was_written(store: Storage) -> None:
    other = SessionHeader(id="demo.10", created_at=2, cwd="/srv/b", delegation_depth=0)
    put(store, HEAD, turn(0), turn(2, 2))
    put(store, other, turn(0))
    backend = store.open()
    listing = backend.list()
    assert sorted(found.header.id for found in listing.sessions) == ["demo.10", "demo.2"]
    assert listing.problems == ()
    for found in listing.sessions:
        assert found.size > 0 and found.revision == backend.revision(found.header.id)
    assert backend.ids() == ["demo.10", "demo.2"] and backend.ids("demo.1") == ["demo.10"]
    assert backend.ids("") == backend.ids("demo") and backend.ids("x") == []
    backend.close()


def test_a_suffix_is_exact_at_every_seq(store: Storage, golden: LogView) -> None:
    entries = golden.entries()
    put(store, golden.header, entries[:4], entries[4:9], entries[9:])
    backend = store.open()
    for seq in range(golden.length + 3):
        found = read_tail(backend, golden.header.id, seq)
        assert found is not None
        assert [event.to_json() for event in expand(found)] == as_json(golden, seq)
    assert read_tail(backend, "nobody", 0) is None
    backend.close()


def test_a_revision_is_stable_and_changes_with_each_batch(store: Storage) -> None:
    backend = store.open()
    backend.append(HEAD, turn(0))
    first = backend.revision(HEAD.id)
    assert first is not None and first == backend.revision(HEAD.id)
    stored = backend.load(HEAD.id)
    assert stored is not None and stored.revision == first
    backend.append(HEAD, turn(2, 2))
    assert backend.revision(HEAD.id) != first
    backend.close()


def test_an_open_session_belongs_to_one(shared: Storage) -> None:
    put(shared, HEAD, turn(0))
    owner, other = shared.open(), shared.open()
    assert owner.open(HEAD.id) is not None
    for attempt in (lambda: other.open(HEAD.id), lambda: other.delete(HEAD.id)):
        with pytest.raises(SessionBusy) as caught:
            attempt()
        assert caught.value.code == "SESSION_BUSY" and "process" in caught.value.owner
    assert got(other, HEAD.id).stored_length == 2
    owner.rest(HEAD.id)
    assert other.open(HEAD.id) is not None
    other.release(HEAD.id)
    owner.append(HEAD, turn(2, 2))
    owner.release(HEAD.id)
    assert other.open(HEAD.id) is not None
    other.close()
    owner.close()


def test_a_writer_that_missed_something_is_refused(shared: Storage) -> None:
    put(shared, HEAD, turn(0))
    late, early = shared.open(), shared.open()
    assert late.open(HEAD.id) is not None
    late.rest(HEAD.id)
    assert early.open(HEAD.id) is not None
    early.append(HEAD, turn(2, 2))
    early.release(HEAD.id)
    with pytest.raises(PersistenceError):
        late.append(HEAD, turn(2, 3))
    assert as_json(got(early, HEAD.id)) == [e.to_json() for e in expand([*turn(0), *turn(2, 2)])]
    late.close()
    early.close()


def test_a_torn_tail_is_left_out_and_repair_takes_it_off_for_good(shared: Storage) -> None:
    put(shared, HEAD, [*turn(0), event(2, turn=2)])
    assert shared.tear is not None
    shared.tear(HEAD)
    backend = shared.open()
    before = backend.revision(HEAD.id)
    seen = got(backend, HEAD.id)
    assert seen.torn is not None and (seen.stored_length, seen.length) == (3, 4)
    assert seen.event(3).data == {"turn": 2, "reason": {"kind": "interrupted"}}
    tail = read_tail(backend, HEAD.id, 1)
    assert tail is not None and [event.seq for event in expand(tail)] == [1, 2]
    assert backend.revision(HEAD.id) == before

    stored = backend.open(HEAD.id)
    assert stored is not None
    view = build_view(stored)
    backend.repair(stored, view.closers, view.recovered)
    backend.append(HEAD, turn(4, 3))
    backend.release(HEAD.id)

    after = got(backend, HEAD.id)
    assert not after.needs_repair and after.stored_length == 6
    assert as_json(after)[:4] == as_json(seen)
    backend.close()


@needs_corpus
def test_a_job_that_ended_at_any_event_is_closed_by_repair_and_goes_on(store: Storage) -> None:
    whole = view_of(CORPUS / "runs" / "parallel-reads.jsonl")
    for number, size in enumerate(range(1, whole.length + 1)):
        header = msgspec.structs.replace(whole.header, id=f"ended.{number}")
        put(store, header, list(whole.events(0, size)))
        backend = store.open()
        stored = backend.open(header.id)
        assert stored is not None
        seen = build_view(stored)
        assert seen.stored_length == size and seen.torn is None
        backend.repair(stored, seen.closers, seen.recovered)
        turns = sum(event.type == "turn/start" for event in seen.events())
        backend.append(header, turn(seen.length, turns + 1)[:1])
        backend.release(header.id)

        after = got(backend, header.id)
        assert as_json(after)[: seen.length] == as_json(seen)
        assert as_json(seen)[:size] == [event.to_json() for event in whole.events(0, size)]
        assert [found for found in verify(after).findings if found.level == "error"] == []


def test_a_deleted_session_is_gone_and_its_id_free(store: Storage) -> None:
    other = SessionHeader(id="other", created_at=2, cwd="/srv/app", delegation_depth=0)
    put(store, HEAD, turn(0))
    put(store, other, turn(0))
    backend = store.open()
    assert backend.delete(HEAD.id)
    assert not backend.delete(HEAD.id)
    assert backend.ids() == ["other"] and backend.load(HEAD.id) is None and not backend.is_taken(HEAD)
    backend.append(HEAD, [*turn(0), *turn(2, 2)])
    assert got(backend, HEAD.id).stored_length == 4
    backend.close()


def test_the_figures_say_what_packing_did(store: Storage, golden: LogView) -> None:
    put(store, golden.header, golden.entries())
    backend = store.open()
    found = backend.figures(golden.header.id)
    assert found is not None and found.events == 17
    assert found.text_bytes <= found.unpacked_bytes and found.stored_bytes > 0
    if found.packed_rows:
        assert found.rows == 17 - found.packed_events + found.packed_rows
        assert found.text_bytes == len(TEXT)
    backend.close()


# -- forks -----------------------------------------------------------------------------------------


def test_a_fork_is_stored_whole_and_its_parent_stays(store: Storage, golden: LogView) -> None:
    put(store, golden.header, golden.entries())
    backend = store.open()
    before = backend.revision(golden.header.id)

    child = fork_stored(backend, golden.header.id, clock=lambda: 99)

    assert backend.revision(golden.header.id) == before
    assert (child.parent_session, child.seed_length, child.cwd) == (golden.header.id, 17, golden.header.cwd)
    view = got(backend, child.id)
    assert view.header == child and not view.needs_repair
    assert as_json(view)[:17] == as_json(golden)
    assert [event.type for event in view.events(17)] == ["session/end-seed"]
    grandchild = fork_stored(backend, child.id, child_id="grandchild")
    assert (grandchild.parent_session, grandchild.seed_length) == (child.id, 18)
    backend.close()


def test_a_fork_of_a_torn_or_open_log_has_the_repaired_view(store: Storage) -> None:
    put(store, HEAD, [*turn(0), event(2, turn=2)])
    backend = store.open()
    before = backend.revision(HEAD.id)
    child = fork_stored(backend, HEAD.id)
    assert child.seed_length == 4
    assert backend.revision(HEAD.id) == before and got(backend, HEAD.id).stored_length == 3
    at_one = fork_stored(backend, HEAD.id, turn=1)
    assert at_one.seed_length == 2
    backend.close()


def test_a_fork_that_is_refused_stores_nothing(store: Storage) -> None:
    put(store, HEAD, turn(0))
    backend = store.open()
    with pytest.raises(SessionCollision):
        fork_stored(backend, "nobody", child_id=HEAD.id)
    with pytest.raises(SessionNotFound):
        fork_stored(backend, "nobody")
    for boundary, number in ((2, None), (0, None), (None, 7)):
        with pytest.raises(SessionForkError):
            fork_stored(backend, HEAD.id, boundary=boundary, turn=number)
    assert backend.ids() == [HEAD.id]
    backend.close()


def test_what_was_written_since_it_was_seen_is_not_deleted(store: Storage) -> None:
    put(store, HEAD, turn(0))
    backend = store.open()
    seen = backend.revision(HEAD.id)
    backend.open(HEAD.id)
    backend.append(HEAD, turn(2, 2))
    backend.release(HEAD.id)

    with pytest.raises(PersistenceError, match="written meanwhile") as caught:
        backend.delete(HEAD.id, revision=seen)
    assert caught.value.code == "SESSION_FILE_CHANGED"
    assert got(backend, HEAD.id).stored_length == 4

    assert backend.delete(HEAD.id, revision=backend.revision(HEAD.id))
    assert not backend.delete(HEAD.id, revision=seen)
    backend.close()


def test_who_writes_a_session_is_told_without_its_lock(store: Storage) -> None:
    owner = store.open()
    assert owner.writer(HEAD.id) is None
    owner.append(HEAD, turn(0))
    told = store.open().writer(HEAD.id)
    assert told is not None and f"{os.getpid()}" in told
    owner.release(HEAD.id)
    assert owner.writer(HEAD.id) is None
    owner.close()


def test_a_fork_that_fails_only_in_its_last_sync_is_not_to_be_seen(
    store: Storage, golden: LogView, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, golden.header, golden.entries())
    backend = store.open()
    append = backend.append

    def fails_late(header: SessionHeader, entries: Sequence[Entry]) -> None:
        append(header, entries)
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(backend, "append", fails_late)
    with pytest.raises(PersistenceError) as caught:
        fork_stored(backend, golden.header.id, child_id="child")
    assert caught.value.code == "SESSION_NOT_DURABLE"
    assert backend.ids() == [golden.header.id]
    backend.close()
