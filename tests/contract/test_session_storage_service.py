"""The service `sessionPersistence` over every storage (`spec/persistence.md` §2, §4)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.persistence.coordinator import Coordinator
from dsh.persistence.error import (
    PackingUnsupported,
    PersistenceError,
    SessionCollision,
    SessionLive,
    SessionNotFound,
)
from dsh.session.chunk import TextDelta
from dsh.session.error import InvalidEvent, JsonError, SessionForkError
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.value import FrozenDict
from tests.aio import aio
from tests.contract.storages import ALL, event, storage
from tests.persistence.golden import types_of

HEAD = SessionHeader(id="demo", created_at=1_700_000_000_000, cwd="/srv/app", delegation_depth=0)
DONE = {"kind": "completed"}


@pytest.fixture(params=ALL)
def name(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@asynccontextmanager
async def opened(name: str, root: Path) -> AsyncIterator[Coordinator]:
    coordinator = Coordinator(storage(name, root / "store").open())
    try:
        yield coordinator
    finally:
        await coordinator.close()


def live(session_id: str = "demo") -> Session:
    return Session(SessionHeader(id=session_id, created_at=1, cwd="/srv/app", delegation_depth=0))


def call(call_id: str) -> dict[str, Any]:
    return {"type": "tool-call", "id": call_id, "name": "bash", "arguments": {"command": "ls"}}


def open_step() -> list[SessionEvent]:
    """A step whose reply makes two calls, of which one was begun."""
    reply = {
        "id": "m1",
        "role": "assistant",
        "content": [call("started"), call("waiting")],
        "source": {"kind": "model", "provider": "p", "model": "m"},
    }
    return [
        event(0),
        event(1, "step/start", step=1),
        SessionEvent(
            "assistant/message",
            2,
            1,
            {"turn": 1, "step": 1, "message": reply, "finishReason": "tool-calls", "usage": {}},
            surface="append",
        ),
        SessionEvent("tool/call", 3, 1, {"turn": 1, "step": 1, "callId": "started", "name": "bash"}),
    ]


@aio
async def test_a_registered_session_is_nowhere_until_its_first_append(name: str, tmp_path: Path) -> None:
    async with opened(name, tmp_path) as store:
        await store.create(HEAD)
        assert (await store.list()).sessions == ()
        for read in (store.load, store.inspect, store.prepare, store.read_raw):
            if read == store.read_raw and name.startswith("sqlite"):
                continue
            with pytest.raises(SessionNotFound):
                await read(HEAD.id)
        with pytest.raises(SessionNotFound):
            await store.read_from(HEAD.id, 0)
        with pytest.raises(SessionCollision):
            await store.create(HEAD)
        await store.append(HEAD.id, [event(0), event(1, "turn/end", reason=DONE)])
        assert [found.header for found in (await store.list()).sessions] == [HEAD]
        with pytest.raises(SessionCollision):
            await store.create(HEAD)


@aio
async def test_a_batch_is_stored_whole_or_not_at_all(name: str, tmp_path: Path) -> None:
    async with opened(name, tmp_path) as store:
        await store.append("nobody", [])
        with pytest.raises(SessionNotFound):
            await store.append("nobody", [event(0)])
        await store.create(HEAD)
        await store.append(HEAD.id, [event(0), event(1, "turn/end", reason=DONE)])
        for wrong in ([event(1)], [event(3)], [event(2, turn=2), event(4)]):
            with pytest.raises(PersistenceError, match="expected seq"):
                await store.append(HEAD.id, wrong)
        assert len(await store.read_from(HEAD.id, 0)) == 2
        await store.append(HEAD.id, [event(2, turn=2), event(3, "turn/end", 2, reason=DONE)])
        assert [found.seq for found in await store.read_from(HEAD.id, 1)] == [1, 2, 3]
        assert await store.read_from(HEAD.id, 4) == ()
        with pytest.raises(TypeError):
            await store.read_from(HEAD.id, True)


@aio
async def test_what_no_reader_would_take_is_refused_at_the_door(name: str, tmp_path: Path) -> None:
    deep: Any = []
    for _ in range(600):
        deep = [deep]
    async with opened(name, tmp_path) as store:
        await store.create(HEAD)
        for data, told in (({1, 2}, "set"), (deep, "nesting"), (float("nan"), "finite|nan|NaN")):
            with pytest.raises((JsonError, InvalidEvent), match=told):
                await store.append(HEAD.id, [event(0), SessionEvent("x.y/z", 1, 1, data, ignorable=True)])
        with pytest.raises(InvalidEvent):
            await store.append(
                HEAD.id, [SessionEvent("user/message", 0, 1, {"content": []}, surface="append")]
            )
        assert (await store.list()).sessions == ()
        await store.append(HEAD.id, [event(0), event(1, "turn/end", reason=DONE)])


@aio
async def test_a_live_session_is_its_own_only_writer(name: str, tmp_path: Path) -> None:
    async with opened(name, tmp_path) as store:
        session = live()
        store.attach(session, is_new=True)
        session.append("turn/start", {"turn": 1})
        await store.flush(session)
        with pytest.raises(SessionCollision):
            await store.append("demo", [event(1, "turn/end", reason=DONE)])
        for refused in (store.delete, store.pack):
            with pytest.raises(SessionLive):
                await refused("demo")
        with pytest.raises(SessionCollision):
            await store.prepare("demo")
        with pytest.raises(PersistenceError, match="is open"):
            await store.load("demo")
        session.append("turn/end", {"turn": 1, "reason": DONE})
        assert types_of(await store.load("demo")) == ["turn/start", "turn/end"]
        assert types_of(await store.inspect("demo")) == ["turn/start", "turn/end"]
        store.retire(session)
        assert types_of(await store.load("demo")) == ["turn/start", "turn/end"]
        await store.delete("demo")
        with pytest.raises(SessionNotFound):
            await store.load("demo")
        with pytest.raises(SessionNotFound):
            await store.delete("demo")


@aio
async def test_both_repairs_are_written_once_by_load_and_by_nobody_else(name: str, tmp_path: Path) -> None:
    async with opened(name, tmp_path) as store:
        await store.create(HEAD)
        await store.append(HEAD.id, open_step())
        seen = await store.inspect(HEAD.id)
        assert len(await store.read_from(HEAD.id, 0)) == 4
        loaded = await store.load(HEAD.id)
        assert types_of(loaded) == types_of(seen)
        codes = [found.data["error"]["code"] for found in loaded.events() if found.type == "tool/result"]
        assert sorted(codes) == ["TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN"]
        assert types_of(loaded)[-2:] == ["step/end", "turn/end"]
        assert len(await store.read_from(HEAD.id, 0)) == loaded.length
        assert (await store.load(HEAD.id)).length == loaded.length
        assert not loaded.needs_repair


@aio
async def test_a_resumed_session_continues_what_is_stored(name: str, tmp_path: Path) -> None:
    async with opened(name, tmp_path) as store:
        await store.create(HEAD)
        await store.append(HEAD.id, [event(0), event(1, "step/start", step=1)])
        prepared = await store.prepare(HEAD.id)
        with pytest.raises(SessionCollision):
            await store.append(HEAD.id, [event(4, turn=2)])
        with pytest.raises(SessionLive):
            await store.delete(HEAD.id)
        store.attach(prepared.session, is_new=True)
        prepared.session.append("turn/start", {"turn": 2})
        await store.flush(prepared.session)
        found = [stored.type for stored in await store.read_from(HEAD.id, 0)]
        assert found == ["turn/start", "step/start", "step/end", "turn/end", "session/end-seed", "turn/start"]
    if name == "sqlite-memory":
        return
    async with opened(name, tmp_path) as store:
        assert types_of(await store.inspect(HEAD.id)) == [*found, "turn/end"]


@aio
async def test_live_and_cold_sessions_are_forked(name: str, tmp_path: Path) -> None:
    async with opened(name, tmp_path) as store:
        session = live()
        store.attach(session, is_new=True)
        session.append("turn/start", {"turn": 1})
        session.append("turn/end", {"turn": 1, "reason": DONE})
        session.append("turn/start", {"turn": 2})
        with pytest.raises(SessionForkError) as caught:
            await store.fork("demo")
        assert caught.value.code == "OPEN_TURN"
        child = await store.fork("demo", turn=1, child_id="child")
        assert (child.id, child.parent_session, child.seed_length) == ("child", "demo", 2)
        assert types_of(await store.load("child")) == ["turn/start", "turn/end", "session/end-seed"]
        for taken in ("child", "demo"):
            with pytest.raises(SessionCollision):
                await store.fork("demo", turn=1, child_id=taken)
        with pytest.raises(SessionNotFound):
            await store.fork("nobody")
        second = await store.fork("child")
        assert (second.parent_session, second.seed_length) == ("child", 3)
        await store.append("child", [event(3, turn=2), event(4, "turn/end", 2, reason=DONE)])
        assert (await store.inspect(second.id)).length == 3
        assert (await store.inspect("child")).length == 5
        assert session.length == 3


@aio
async def test_packing_changes_no_event(name: str, tmp_path: Path) -> None:
    async with opened(name, tmp_path) as store:
        session = live()
        store.attach(session, is_new=True)
        session.append("turn/start", {"turn": 1})
        session.append("step/start", {"turn": 1, "step": 1})
        for number in range(40):
            session.append_chunk(1, 1, TextDelta(0, f"word {number} "))
            if number % 2:
                await store.flush(session)
        store.retire(session)
        before = await store.inspect("demo")
        try:
            packed = await store.pack("demo")
        except PackingUnsupported:
            assert name.startswith("sqlite")
            return
        assert packed.after < packed.before
        after = await store.inspect("demo")
        assert after.length == before.length
        assert [a.to_json() for a in after.events()] == [b.to_json() for b in before.events()]
        again = await store.pack("demo")
        assert again.before == again.after
        with pytest.raises(SessionNotFound):
            await store.pack("nobody")


@aio
async def test_a_caller_that_is_cancelled_stops_nothing(name: str, tmp_path: Path) -> None:
    async with opened(name, tmp_path) as store:
        await store.create(HEAD)
        append = asyncio.create_task(store.append(HEAD.id, [event(0), event(1, "turn/end", reason=DONE)]))
        await asyncio.sleep(0)
        append.cancel()
        with pytest.raises(asyncio.CancelledError):
            await append
        assert (await store.inspect(HEAD.id)).length == 2


@aio
async def test_a_view_does_not_change_with_its_session(name: str, tmp_path: Path) -> None:
    async with opened(name, tmp_path) as store:
        session = live()
        store.attach(session, is_new=True)
        session.append("turn/start", {"turn": 1})
        view = await store.inspect("demo")
        session.append("turn/end", {"turn": 1, "reason": DONE})
        assert view.length == 1
        assert isinstance(view.event(0).data, FrozenDict)
