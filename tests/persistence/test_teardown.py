"""The end of a session and of the storage: what is held is stored, locks are given back, errors are told."""

import asyncio
import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from dsh.persistence.coordinator import Coordinator
from dsh.persistence.error import (
    PersistenceError,
    SessionNotDurable,
)
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.session.chunk_run import Entry
from dsh.session.header import SessionHeader
from tests.aio import aio
from tests.persistence.clock import ManualClock, settle
from tests.persistence.faults import FaultyFiles
from tests.persistence.golden import TEXT
from tests.persistence.opened import event, lines_of, live, opened, store_text


@aio
async def test_retirement_stores_the_rest_before_the_id_can_be_opened_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session = live()
        store.attach(session, is_new=True)
        session.append("turn/start", {"turn": 1})
        session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
        store.retire(session)

        reservation = await store.prepare("demo.1")
        assert reservation.session.length == 3
        await reservation.release()


@aio
async def test_a_retirement_that_failed_is_told_and_tried_again_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles(code=errno.EIO)
    async with opened(tmp_path, files=files, clock=ManualClock()) as store:
        session = live()
        session.append("turn/start", {"turn": 1})
        store.attach(session)
        files.fail_at = len(files.calls)
        store.retire(session)
        with pytest.raises(SessionNotDurable, match="Input/output") as caught:
            await store.load("demo.1")
        assert caught.value.exit_code == 8
        assert caplog.text.count("was not stored: session 'demo.1' could not be stored in") == 1
    assert len(await lines_of(tmp_path)) == 1


@aio
async def test_the_same_trouble_is_the_same_error_until_it_is_over(tmp_path: Path) -> None:
    files = FaultyFiles(code=errno.ENOSPC)
    async with opened(tmp_path, files=files, clock=ManualClock()) as store:
        session = live()
        session.append("turn/start", {"turn": 1})
        raised: list[Exception] = []
        for _ in range(3):
            files.fail_at = len(files.calls)
            for _ in range(2):
                with pytest.raises(SessionNotDurable) as caught:
                    await store.flush(session)
                raised.append(caught.value)
                files.fail_at = len(files.calls)
            files.fail_at = None
            await store.flush(session)
            session.append("feedback/record", {"text": "more"})
        assert [raised.index(error) for error in raised] == [0, 0, 2, 2, 4, 4]


@aio
async def test_the_end_stores_every_live_session_and_gives_the_locks_back(tmp_path: Path) -> None:
    store = Coordinator(JsonlBackend(tmp_path), schedule=ManualClock())
    sessions = [live(f"s{number}") for number in range(5)]
    for session in sessions:
        session.append("turn/start", {"turn": 1})
        store.attach(session)

    await store.close()

    other = JsonlBackend(tmp_path)
    assert {stored.header.id for stored in other.list().sessions} == {f"s{n}" for n in range(5)}
    for session in sessions:
        assert other.open(session.id) is not None
    other.close()


@aio
async def test_an_append_that_does_not_follow_gives_the_lock_back(tmp_path: Path) -> None:
    store_text(tmp_path, TEXT)
    async with opened(tmp_path) as store:
        with pytest.raises(PersistenceError, match="expected seq 17, found 3"):
            await store.append("demo.1", [event(3)])
        with pytest.raises(PersistenceError, match="expected seq 18, found 19"):
            await store.append("demo.1", [event(17), event(19)])

        other = JsonlBackend(tmp_path)
        assert other.open("demo.1") is not None
        other.close()
        await store.append("demo.1", [event(17)])
        assert (await store.inspect("demo.1")).stored_length == 18


@aio
async def test_reservations_are_given_out_one_after_the_other(tmp_path: Path) -> None:
    store_text(tmp_path, TEXT)
    async with opened(tmp_path) as store:
        first = await store.prepare("demo.1")
        waiting = [asyncio.create_task(store.prepare("demo.1")) for _ in range(3)]
        await settle()
        assert not any(task.done() for task in waiting)

        await first.release()
        for _ in range(3):
            done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            (task,) = done
            waiting = list(pending)
            await task.result().release()


@aio
async def test_a_preparation_that_nobody_waits_for_any_more_is_given_back(tmp_path: Path) -> None:
    store_text(tmp_path, TEXT)
    async with opened(tmp_path) as store:
        waiting = asyncio.create_task(store.prepare("demo.1"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        reservation = await store.prepare("demo.1")
        assert reservation.session.length == 18
        await reservation.release()


@aio
async def test_several_failures_at_the_end_come_as_one_group(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("in the way")
    store = Coordinator(JsonlBackend(tmp_path / "sessions"), schedule=ManualClock())
    for number in range(2):
        session = live(f"s{number}")
        session.append("turn/start", {"turn": 1})
        store.attach(session)

    with pytest.raises(ExceptionGroup, match="JSONL sessions under") as caught:
        await store.close()
    assert len(caught.value.exceptions) == 2


class Recording(JsonlBackend):
    """Says what it was asked for, and cannot be closed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.asked: list[str] = []

    def append(self, header: SessionHeader, entries: Sequence[Entry]) -> None:
        self.asked.append(f"append {header.id}")
        if header.id == "bad":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().append(header, entries)

    def release(self, session_id: str) -> None:
        self.asked.append(f"release {session_id}")
        super().release(session_id)

    def close(self) -> None:
        self.asked.append("close")
        super().close()
        raise OSError("cannot be closed")


@aio
async def test_the_backend_is_closed_last_and_its_error_hides_none_before(tmp_path: Path) -> None:
    backend = Recording(tmp_path)
    store = Coordinator(backend, schedule=ManualClock())
    for name in ("retired", "live", "bad"):
        session = live(name)
        session.append("turn/start", {"turn": 1})
        store.attach(session)
        if name == "retired":
            store.retire(session)

    with pytest.raises(ExceptionGroup, match="closing") as caught:
        await store.close()

    first, second = caught.value.exceptions
    assert "'bad'" in str(first) and str(second) == "cannot be closed"
    until_close = backend.asked[: backend.asked.index("close")]
    assert {"append live", "append retired", "append bad", "release retired"} <= set(until_close)
    assert until_close.index("append retired") < until_close.index("release retired")
    assert not [word for word in backend.asked[len(until_close) :] if word.startswith("append")]
    await store.close()
