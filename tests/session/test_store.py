"""The store of live sessions: registration, announcement, observers, flush (`spec/session-log.md` §15)."""

from collections.abc import Callable
from typing import Any

import pytest

from dsh.kernel import Context, create_scope
from dsh.plugins import session as row
from dsh.session.chunk import Finish, TextDelta
from dsh.session.error import InvalidHeader, ReentrantAppend, SessionError, SessionExists, SessionNotLive
from dsh.session.log import Session
from dsh.session.store import (
    SESSION_CREATED,
    SESSION_DELTA,
    SESSION_DISPOSED,
    SESSION_EVENT,
    SESSION_FLUSH,
    SESSIONS,
    Appended,
    DeltaAppended,
    SessionStore,
)
from tests.aio import aio
from tests.session.build import in_step

NOTE: dict[str, Any] = {"text": "note"}


async def mounted() -> tuple[Context, SessionStore]:
    ctx = Context()
    await ctx.plugin(row)
    return ctx, ctx.use(SESSIONS)


def journal(ctx: Context) -> list[str]:
    """What the store tells everybody, in order."""
    told: list[str] = []
    ctx.on(SESSION_CREATED, lambda session: told.append(f"created {session.id}"))
    ctx.on(SESSION_DISPOSED, lambda session: told.append(f"disposed {session.id}"))
    ctx.on(SESSION_EVENT, lambda payload: told.append(f"event {payload.seq}"))
    return told


@aio
async def test_a_session_is_prepared_registered_and_announced() -> None:
    ctx, store = await mounted()
    told = journal(ctx)

    session = store.prepare("s", cwd="/w", agent_preset="coder")
    assert (store.get("s"), told) == (None, [])
    detach = store.enter(session)
    assert (store.get("s"), store.list(), told) == (session, (session,), [])
    store.announce(session)
    session.append("feedback/record", NOTE)
    detach()
    detach()

    assert told == ["created s", "event 0", "disposed s"]
    assert (store.get("s"), session.header.cwd, session.header.agent_preset) == (None, "/w", "coder")
    session.append("feedback/record", NOTE)
    assert told[-1] == "disposed s"


@aio
async def test_ids_are_the_next_free_number_and_unique() -> None:
    _, store = await mounted()
    first = store.prepare()
    rival = store.prepare()
    assert first.id == rival.id == "session-1"

    store.enter(first)

    assert store.prepare().id == "session-2"
    with pytest.raises(SessionExists):
        store.prepare("session-1")
    with pytest.raises(SessionExists):
        store.enter(rival)
    with pytest.raises(SessionExists):
        store.enter(first)


@aio
async def test_a_session_belongs_to_one_store() -> None:
    _, store = await mounted()
    _, other = await mounted()
    session = store.prepare("s")
    store.enter(session)

    with pytest.raises(SessionExists, match="registered already"):
        other.enter(session)


@aio
async def test_a_header_out_of_shape_is_refused() -> None:
    _, store = await mounted()

    with pytest.raises(InvalidHeader, match="cwd"):
        store.prepare("s", cwd="w")
    with pytest.raises(InvalidHeader, match="id"):
        store.prepare("")


@aio
async def test_a_seed_is_not_told_to_anybody() -> None:
    ctx, store = await mounted()
    told = journal(ctx)

    session, _ = store.create("child", seed=in_step().entries())

    assert told == ["created child"]
    assert (session.length, session.first_live_seq) == (3, 2)


@aio
async def test_a_listener_that_raises_vetoes_a_session() -> None:
    ctx, store = await mounted()
    told = journal(ctx)

    def veto(session: Session) -> None:
        raise RuntimeError("no")

    ctx.on(SESSION_CREATED, veto)
    session = store.prepare("s")
    store.enter(session)

    with pytest.raises(RuntimeError, match="no"):
        store.announce(session)
    with pytest.raises(RuntimeError, match="no"):
        store.create("t")

    assert told == ["created s", "disposed s", "created t", "disposed t"]
    assert store.list() == ()
    assert session.on_append is None


@aio
async def test_a_session_that_was_never_announced_leaves_in_silence() -> None:
    ctx, store = await mounted()
    told = journal(ctx)

    store.enter(store.prepare("s"))()

    assert told == []


@aio
async def test_a_session_is_announced_once() -> None:
    _, store = await mounted()
    session, _ = store.create("s")

    with pytest.raises(SessionError, match="already"):
        store.announce(session)
    with pytest.raises(SessionNotLive):
        store.announce(store.prepare("t"))


@aio
async def test_a_created_session_goes_with_its_owner() -> None:
    ctx, store = await mounted()
    told = journal(ctx)

    async def owner(own: Context) -> None:
        own.use(SESSIONS).create("s")

    fiber = ctx.plugin(owner, inject=[SESSIONS])
    await fiber
    assert store.get("s") is not None
    await fiber.dispose()

    assert told == ["created s", "disposed s"]


@aio
async def test_a_detach_during_a_dispatch_waits_for_its_end() -> None:
    ctx, store = await mounted()
    told: list[str] = []
    detach: list[Callable[[], None]] = []

    def leave(payload: Appended) -> None:
        detach[0]()
        told.append(f"still there {store.get('s') is not None}")

    ctx.on(SESSION_EVENT, leave)
    ctx.on(SESSION_EVENT, lambda payload: told.append(f"event {payload.seq}"))
    ctx.on(SESSION_DISPOSED, lambda session: told.append("disposed"))
    session = store.prepare("s")
    detach.append(store.enter(session))
    store.announce(session)

    session.append("feedback/record", NOTE)

    assert told == ["still there True", "event 0", "disposed"]


@aio
async def test_a_detach_during_the_announcement_waits_for_its_end() -> None:
    ctx, store = await mounted()
    told: list[str] = []
    detach: list[Callable[[], None]] = []

    def leave(session: Session) -> None:
        session.append("feedback/record", NOTE)
        detach[0]()
        told.append(f"still there {store.get('s') is not None}")

    def leave_too(payload: Appended) -> None:
        detach[0]()

    ctx.on(SESSION_CREATED, leave)
    ctx.on(SESSION_EVENT, leave_too)
    ctx.on(SESSION_DISPOSED, lambda session: told.append("disposed"))
    session = store.prepare("s")
    detach.append(store.enter(session))

    store.announce(session)

    assert told == ["still there True", "disposed"]


@aio
async def test_observers_are_contained_and_cannot_append() -> None:
    ctx, store = await mounted()
    session, _ = store.create("s")
    told: list[int] = []

    def bad(payload: Appended) -> None:
        raise RuntimeError("observer")

    async def bad_later(payload: Appended) -> None:
        raise RuntimeError("observer")

    def again(payload: Appended) -> None:
        with pytest.raises(ReentrantAppend):
            payload.session.append("feedback/record", NOTE)

    for listener in (bad, bad_later, again):
        ctx.on(SESSION_EVENT, listener)
    ctx.on(SESSION_EVENT, lambda payload: told.append(payload.seq))

    first = session.append("feedback/record", NOTE)
    second = session.append("feedback/record", NOTE)

    assert (first.seq, second.seq, told, session.length) == (0, 1, [0, 1], 2)


@aio
async def test_a_packed_delta_is_told_to_those_who_listen_to_deltas_only() -> None:
    ctx, store = await mounted()
    session, _ = store.create("s", seed=in_step().entries())
    told: list[object] = []
    ctx.on(SESSION_EVENT, told.append)
    ctx.on(SESSION_DELTA, told.append)

    seq = session.append_chunk(1, 1, TextDelta(0, "a"))
    finish = session.append_chunk(1, 1, Finish({"kind": "stop"}))

    assert told == [DeltaAppended(session, seq), Appended(session, finish, session.event(finish))]
    assert session.event(seq).data["chunk"]["text"] == "a"


@aio
async def test_listeners_of_a_scope_hear_their_own_sessions_only() -> None:
    ctx, store = await mounted()
    keys = [type("Agent", (), {})() for _ in range(2)]
    scopes = [await create_scope(ctx, key) for key in keys]
    told: list[tuple[str, str]] = []
    for name, scope in zip("ab", scopes, strict=True):
        scope.ctx.on(SESSION_EVENT, lambda payload, name=name: told.append((name, payload.session.id)))
    stores = [scope.ctx.get(SESSIONS) for scope in scopes]
    sessions = [own.create(f"of-{name}")[0] for name, own in zip("ab", stores, strict=True) if own]
    plain, _ = store.create("plain")

    for session in (*sessions, plain):
        session.append("feedback/record", NOTE)

    assert told == [("a", "of-a"), ("b", "of-b")]
    await ctx.dispose()


@aio
async def test_flush_waits_for_all_and_raises_the_first_failure() -> None:
    ctx, store = await mounted()
    session, _ = store.create("s")
    assert not await store.flush(session)
    told: list[str] = []

    async def fails(flushed: Session) -> None:
        raise OSError("disk")

    async def fails_too(flushed: Session) -> None:
        raise ValueError("late")

    async def works(flushed: Session) -> None:
        told.append(flushed.id)

    ctx.on(SESSION_FLUSH, works)
    assert await store.flush(session)
    for listener in (fails, fails_too, works):
        ctx.on(SESSION_FLUSH, listener)

    with pytest.raises(OSError, match="disk"):
        await store.flush(session)

    assert told == ["s", "s", "s"]


@aio
async def test_flush_of_a_session_that_is_not_live_is_refused() -> None:
    _, store = await mounted()
    session, _ = store.create("s")
    impostor = Session(session.header)

    for other in (impostor, store.prepare("t")):
        with pytest.raises(SessionNotLive):
            await store.flush(other)
