"""The service over the JSONL backend: contract, ownership, repair, retirement, teardown."""

import asyncio
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dsh.persistence.error import (
    PersistenceError,
    SessionBusy,
    SessionCollision,
    SessionCorruption,
    SessionFileChanged,
    SessionNotFound,
)
from dsh.persistence.write_behind import TELL_AFTER_S
from dsh.session.chunk import TextDelta
from dsh.session.header import SessionHeader
from tests.aio import aio
from tests.persistence.clock import ManualClock, settle
from tests.persistence.faults import FaultyFiles
from tests.persistence.golden import HEADER, TEXT, line, turn_end, turn_start, types_of, view_of
from tests.persistence.opened import HEAD, event, lines_of, live, opened, store_text

# -- the contract of sessions without a live object ------------------------------------------------


@aio
async def test_a_created_session_is_nowhere_until_its_first_append(tmp_path: Path) -> None:
    async with opened(tmp_path / "sessions") as store:
        await store.create(HEAD)
        assert not (tmp_path / "sessions").exists()
        assert (await store.list()).sessions == ()
        with pytest.raises(SessionNotFound):
            await store.load(HEAD.id)
        with pytest.raises(SessionCollision):
            await store.create(HEAD)

        await store.append(HEAD.id, [event(0, "turn/start"), event(1, "step/start")])

        assert [stored.header for stored in (await store.list()).sessions] == [HEAD]
        assert store.locate(HEAD) == tmp_path / "sessions" / "--srv-app--" / "demo.1" / "session.jsonl"
        with pytest.raises(SessionCollision, match="stored already"):
            async with opened(tmp_path / "sessions") as other:
                await other.create(HEAD)


@aio
async def test_an_append_continues_exactly_what_is_stored_or_stores_nothing(tmp_path: Path) -> None:
    path = store_text(tmp_path, TEXT)
    async with opened(tmp_path) as store:
        await store.append("nobody", [])
        with pytest.raises(SessionNotFound):
            await store.append("nobody", [event(0)])
        for wrong in ([event(16)], [event(18)], [event(17), event(19)]):
            with pytest.raises(PersistenceError, match="expected seq"):
                await store.append("demo.1", wrong)
        assert path.read_bytes() == TEXT

        await store.append("demo.1", [event(17, "turn/start", 2), event(18, "turn/end", 2)])
        await store.append("demo.1", [event(19, "turn/start", 3)])

    assert len(path.read_bytes().splitlines()) == 19


@aio
async def test_a_bad_header_is_refused_before_anything_is_registered(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for bad in ({"created_at": -1}, {"cwd": "relative"}, {"version": 3}):
            with pytest.raises(Exception, match=r"header|format"):
                await store.create(SessionHeader(**{"id": "x", "created_at": 1, **bad}))  # type: ignore[arg-type]
        await store.create(SessionHeader(id="x", created_at=1))


@aio
async def test_inspect_leaves_the_file_and_load_repairs_it(tmp_path: Path) -> None:
    torn = TEXT[: TEXT.index(b'{"type":"turn/end"')] + b'{"type":"user/mess'
    path = store_text(tmp_path, torn)
    async with opened(tmp_path) as store:
        seen = await store.inspect("demo.1")
        assert types_of(seen)[-1] == "turn/end"
        assert seen.length == 17 and seen.stored_length == 16
        assert path.read_bytes() == torn
        assert [e.seq for e in await store.read_from("demo.1", 14)] == [14, 15]
        assert (await store.read_raw("demo.1")).content == torn[:-18]

        loaded = await store.load("demo.1")

        assert loaded.length == 17 and not loaded.needs_repair
        assert loaded.event(16).data == {"turn": 1, "reason": {"kind": "interrupted"}}
        repaired = path.read_bytes()
        assert repaired.startswith(torn[:-18])
        assert (await store.load("demo.1")).length == 17
        assert path.read_bytes() == repaired
        assert len(await store.read_from("demo.1", 0)) == 17
        assert await store.read_from("demo.1", 99) == ()
        with pytest.raises(TypeError):
            await store.read_from("demo.1", -1)


@aio
async def test_a_repair_that_would_not_be_readable_is_not_written(tmp_path: Path) -> None:
    bad = HEADER + line("turn/start", 0, {"turn": 0}) + b'{"type":'
    path = store_text(tmp_path, bad)
    async with opened(tmp_path) as store:
        for read in (store.inspect, store.load, store.prepare):
            with pytest.raises(SessionCorruption):
                await read("demo.1")
    assert path.read_bytes() == bad
    assert not list(path.parent.glob("*cut*"))


@aio
async def test_a_cold_view_is_read_once_while_the_file_stays_the_same(tmp_path: Path) -> None:
    path = store_text(tmp_path, TEXT)
    async with opened(tmp_path) as store:
        one, other = await asyncio.gather(store.inspect("demo.1"), store.inspect("demo.1"))
        assert one is other

        path.write_bytes(TEXT + turn_start(17, 2) + turn_end(18, 2))
        assert (await store.inspect("demo.1")).length == 19


@aio
async def test_one_damaged_session_does_not_stop_another(tmp_path: Path) -> None:
    store_text(tmp_path, TEXT)
    bad = tmp_path / "--srv-app--" / "bad" / "session.jsonl"
    bad.parent.mkdir()
    bad.write_bytes(b"nothing\n")
    async with opened(tmp_path) as store:
        with pytest.raises(SessionCorruption):
            await store.load("bad")
        assert (await store.load("demo.1")).length == 17
        listing = await store.list()
        assert (len(listing.sessions), len(listing.problems)) == (1, 1)


# -- live sessions ---------------------------------------------------------------------------------


@aio
async def test_a_live_session_is_stored_after_one_window_in_one_batch(tmp_path: Path) -> None:
    clock = ManualClock()
    async with opened(tmp_path / "sessions", clock=clock) as store:
        session = live()
        store.attach(session, is_new=True)
        await store.flush(session)
        assert not (tmp_path / "sessions").exists()

        session.append("turn/start", {"turn": 1})
        store.appended(session)
        session.append("step/start", {"turn": 1, "step": 1})
        store.appended(session)
        for text in ("a", "b", "c"):
            session.append_chunk(1, 1, TextDelta(0, text))
            store.appended(session)
        assert clock.pending == [pytest.approx(0.2)]

        await clock.advance(0.2)
        await store.inspect("demo.1")
        await _until(lambda: (tmp_path / "sessions").exists())
        await store.flush(session)

        lines = await lines_of(tmp_path / "sessions")
        assert [text.split(b'"')[3] for text in lines] == [b"turn/start", b"step/start", b"text-chunks"]


async def _until(condition: object) -> None:
    for _ in range(500):
        if callable(condition) and condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it did not happen")


@aio
async def test_a_stream_cut_by_flushes_is_stored_as_several_rows_and_read_as_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session = live()
        session.append("turn/start", {"turn": 1})
        session.append("step/start", {"turn": 1, "step": 1})
        for number in range(10):
            session.append_chunk(1, 1, TextDelta(0, f"t{number}"))
            if number in (2, 4):
                await store.flush(session)
        await store.flush(session)
        view = await store.inspect("demo.1")
        stored = await store.read_from("demo.1", 0)

    assert [e.to_json() for e in stored] == [e.to_json() for e in session.events()]
    assert view.open_turn == 1  # a live session's view may stand within a turn
    kinds = [text.split(b'"')[3] for text in await lines_of(tmp_path)]
    # three packed, two loose, five packed
    assert kinds[2:] == [b"text-chunks", b"assistant/chunk", b"assistant/chunk", b"text-chunks"]


@aio
async def test_a_live_session_is_loaded_only_between_turns(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session = live()
        store.attach(session)
        with pytest.raises(SessionNotFound):
            await store.load("demo.1")
        session.append("turn/start", {"turn": 1})
        with pytest.raises(PersistenceError, match="turn 1 is open"):
            await store.load("demo.1")
        session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
        assert (await store.load("demo.1")).length == 2
        assert len(await store.read_from("demo.1", 0)) == 2


@aio
async def test_nobody_else_may_append_to_a_live_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session = live()
        session.append("turn/start", {"turn": 1})
        await store.flush(session)
        with pytest.raises(SessionCollision, match="live"):
            await store.append("demo.1", [event(1, "turn/end")])
        session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
        await store.flush(session)
        assert len(await lines_of(tmp_path)) == 2


@aio
async def test_two_objects_with_one_id_do_not_share_a_log(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        unused, first, second = live(), live(), live()
        store.attach(unused, is_new=True)
        await store.flush(unused)
        store.attach(first, is_new=True)  # the id of one that was never written is free again
        first.append("turn/start", {"turn": 1})
        with pytest.raises(SessionCollision):
            store.attach(second, is_new=True)
        await store.flush(first)


@aio
async def test_a_new_session_with_a_stored_id_is_vetoed_or_fails_at_its_first_flush(tmp_path: Path) -> None:
    path = store_text(tmp_path, TEXT)
    async with opened(tmp_path) as store:
        with pytest.raises(SessionCollision, match="stored already"):
            store.attach(live(), is_new=True)
        elsewhere = live(cwd="/srv/other")
        store.attach(elsewhere, is_new=True)
        elsewhere.append("turn/start", {"turn": 1})
        with pytest.raises(SessionCollision):
            await store.flush(elsewhere)
        store.retire(elsewhere)
        with pytest.raises(SessionCollision):
            await store.load("demo.1")
        with pytest.raises(SessionCollision):
            await store.close()
    assert path.read_bytes() == TEXT


@aio
async def test_a_live_session_is_adopted_where_it_continues_what_is_stored(tmp_path: Path) -> None:
    session = live()
    async with opened(tmp_path) as first:
        session.append("turn/start", {"turn": 1})
        session.append("step/start", {"turn": 1, "step": 1})
        await first.flush(session)
    session.append("step/end", {"turn": 1, "step": 1})
    (path,) = tmp_path.rglob("session.jsonl")
    path.write_bytes(path.read_bytes() + b'{"torn')

    async with opened(tmp_path) as second:  # the row was mounted again over an open turn
        second.attach(session)
        await second.flush(session)

    kinds = [text.split(b'"')[3] for text in await lines_of(tmp_path)]
    assert kinds == [b"turn/start", b"step/start", b"step/end"]

    stranger = live()
    stranger.append("turn/start", {"turn": 1})
    stranger.append("session/title", {"title": "x", "messageSeqs": [], "source": {"kind": "user"}})
    async with opened(tmp_path) as third:
        third.attach(stranger)
        with pytest.raises(SessionCollision, match="another session"):
            await third.flush(stranger)
        third.retire(stranger)
        await settle()
        with pytest.raises(SessionCollision):
            await third.close()


@aio
async def test_a_failed_write_keeps_the_events_and_a_later_flush_stores_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, clock = FaultyFiles(code=errno.ENOSPC), ManualClock()
    async with opened(tmp_path, files=files, clock=clock) as store:
        session = live()
        session.append("turn/start", {"turn": 1})
        await store.flush(session)
        session.append("step/start", {"turn": 1, "step": 1})
        store.appended(session)
        files.fail_at = len(files.calls) + 1
        await clock.advance(0.2)
        await _until(lambda: len(clock.pending) == 2)
        assert caplog.text == ""
        await clock.advance(TELL_AFTER_S)
        assert "could not be stored" in caplog.text and "trying again" in caplog.text

        session.append("step/end", {"turn": 1, "step": 1})
        await store.flush(session)

    assert len(await lines_of(tmp_path)) == 3


@aio
async def test_a_changed_file_fails_the_flush_and_is_left_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session = live()
        session.append("turn/start", {"turn": 1})
        await store.flush(session)
        (path,) = tmp_path.rglob("session.jsonl")
        data = path.read_bytes()
        path.write_bytes(data + b"\n")
        session.append("step/start", {"turn": 1, "step": 1})
        with pytest.raises(SessionFileChanged) as caught:
            await store.flush(session)
        assert caught.value.exit_code == 8
        assert path.read_bytes() == data + b"\n"
        path.write_bytes(data)
        await store.flush(session)


# -- resume ----------------------------------------------------------------------------------------


@aio
async def test_resume_repairs_reserves_and_continues(tmp_path: Path) -> None:
    path = store_text(tmp_path, TEXT[:-1])
    async with opened(tmp_path) as store:
        reservation = await store.prepare("demo.1")
        session = reservation.session
        assert (session.length, session.first_live_seq, session.open_turn) == (18, 17, None)
        assert path.read_bytes() == TEXT[:-1]
        with pytest.raises(SessionCollision):
            await store.append("demo.1", [event(17)])
        with pytest.raises(SessionCollision):
            store.attach(live(), is_new=True)

        store.attach(session, is_new=True)
        await reservation.release()  # of no effect now
        session.append("turn/start", {"turn": 2})
        await store.flush(session)

    added = path.read_bytes().removeprefix(TEXT).splitlines()
    assert [text.split(b'"')[3] for text in added] == [b"session/end-seed", b"turn/start"]
    assert view_of(path).length == 20  # with the closer of turn 2


@aio
async def test_resume_without_work_adds_one_line_once(tmp_path: Path) -> None:
    path = store_text(tmp_path, TEXT)
    for _ in range(3):
        async with opened(tmp_path) as store:
            reservation = await store.prepare("demo.1")
            store.attach(reservation.session, is_new=True)
            await store.flush(reservation.session)
    assert path.read_bytes().count(b"\n") == TEXT.count(b"\n") + 1


@aio
async def test_a_reservation_that_is_given_back_changes_nothing_and_frees_the_lock(tmp_path: Path) -> None:
    path = store_text(tmp_path, TEXT)
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        reservation = await store.prepare("demo.1")
        with pytest.raises(SessionBusy):
            await other.prepare("demo.1")
        waiting = asyncio.create_task(store.prepare("demo.1"))
        await settle()
        assert not waiting.done()

        await reservation.release()
        second = await waiting
        await second.release()
        await (await other.prepare("demo.1")).release()
    assert path.read_bytes() == TEXT


RESUME = """
import asyncio, pathlib, sys
from dsh.persistence.coordinator import Coordinator
from dsh.persistence.jsonl.backend import JsonlBackend
async def main():
    store = Coordinator(JsonlBackend(pathlib.Path(sys.argv[1])))
    try:
        await store.prepare("demo.1")
        print("got it")
    except Exception as error:
        print(error.code, error)
    await store.close()
asyncio.run(main())
"""


@aio
async def test_a_second_process_is_told_who_has_the_session(tmp_path: Path) -> None:
    store_text(tmp_path, TEXT)
    run = [sys.executable, "-c", RESUME, str(tmp_path)]
    async with opened(tmp_path) as store:
        await store.prepare("demo.1")
        busy = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True, check=True)
        assert busy.stdout.startswith("SESSION_BUSY")
        assert f"process {os.getpid()} on host" in busy.stdout
    free = await asyncio.to_thread(subprocess.run, run, capture_output=True, text=True, check=True)
    assert free.stdout == "got it\n"
