"""The publication of an agent: whatever happens at whatever moment, nothing half made is left."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dsh.agent.contract import (
    AGENT_CREATED,
    AGENT_DISPOSED,
    AGENT_SESSION_START,
    Agent,
    AgentHandle,
    AgentOptions,
    CreateAgent,
    ResumeAgent,
)
from dsh.agent.failure import AgentError
from dsh.agent.registry import AGENTS
from dsh.errors import KernelError
from dsh.kernel import Cancelled, CancelToken, Context, Fiber
from dsh.persistence.service import PERSISTENCE
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.store import SESSION_CREATED, SESSION_DISPOSED
from tests.agent.kit import Loop, data_of, ends, loop, settled, text, until
from tests.aio import aio

OPTIONS = AgentOptions(provider="p", model="m")


class Stored:
    """A storage of one session, whose reservation is counted. `delay` ticks pass before it answers."""

    def __init__(self) -> None:
        self.delay = 3
        self.reserved = 0
        self.failure: Exception | None = None

    def session(self) -> Session:
        session = Session(SessionHeader(id="s", created_at=0))
        spliced = {"target": "next-turn", "start": 0, "inserted": [user_message("waiting")]}
        session.append("agent/inbox/spliced", spliced)
        return session

    async def prepare(self, session_id: str) -> Any:
        for _ in range(self.delay):
            await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.reserved += 1
        storage = self

        class Prepared:
            session = storage.session()

            async def release(self) -> None:
                await asyncio.sleep(0)
                storage.reserved -= 1

        return Prepared()


class Stage:
    """A loop, an owner for agents, and what is counted before and after."""

    def __init__(self, it: Loop, owner: Fiber, storage: Stored) -> None:
        self.it, self.owner, self.storage = it, owner, storage
        self.told: list[str] = []
        it.ctx.on(SESSION_CREATED, lambda _: self.told.append("session/created"))
        it.ctx.on(SESSION_DISPOSED, lambda _: self.told.append("session/disposed"))
        it.ctx.on(AGENT_CREATED, lambda _: self.told.append("agent/created"))
        it.ctx.on(AGENT_DISPOSED, lambda _: self.told.append("agent/disposed"))
        self.row = it.ctx.use(AGENTS)._require_factory()._services.ctx.fiber  # type: ignore[attr-defined]
        self.before = self.counts()

    def counts(self) -> tuple[int, ...]:
        kernel = self.it.ctx.kernel
        return (len(self.row.effects), len(self.row.children), len(self.owner.effects), kernel.events.count())

    def start(self, way: str, **fields: Any) -> "asyncio.Task[AgentHandle]":
        agents = self.owner.ctx.use(AGENTS)

        async def make() -> AgentHandle:
            if way == "create":
                return await agents.create(CreateAgent(session_id="s", options=OPTIONS, **fields))
            return await agents.resume(ResumeAgent(session_id="s", options=OPTIONS, **fields))

        return asyncio.ensure_future(make())

    def nothing_left(self) -> bool:
        """Nobody is live, and every announcement that began has its counterpart."""
        is_paired = all(
            self.told.count(f"{what}/created") == self.told.count(f"{what}/disposed")
            for what in ("session", "agent")
        )
        return is_paired and not self.it.ctx.use(AGENTS).list() and not self.it.sessions.list()


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    storage = Stored()

    def give(ctx: Context) -> None:
        ctx.provide(PERSISTENCE, storage)  # type: ignore[misc]

    async with loop(text("done"), first=give) as it:
        owner = it.ctx.inject([AGENTS], lambda ctx: None)
        await settled(owner)
        yield Stage(it, owner, storage)


async def ticks(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def slow(ctx: Context) -> None:
    ctx.on(AGENT_CREATED, lambda _: None)
    await ticks(3)


@pytest.mark.parametrize("after", range(18))
@pytest.mark.parametrize("cause", ["signal", "owner", "loop", "task"])
@pytest.mark.parametrize("way", ["create", "resume"])
@aio
async def test_ended_at_any_moment_it_leaves_nothing(way: str, cause: str, after: int) -> None:
    """The making takes about a dozen ticks; the cause strikes at each of them, and after it."""
    async with stage() as at:
        signal = CancelToken()
        making = at.start(way, setup=slow, signal=signal)
        await ticks(after)
        match cause:
            case "signal":
                signal.cancel("enough")
            case "owner":
                await at.owner.dispose()
            case "loop":
                await at.row.dispose()
            case "task":
                making.cancel()
        try:
            handle = await making
        except (Cancelled, asyncio.CancelledError, KernelError, AgentError):
            pass
        else:
            await handle.dispose()
        await until(at.nothing_left)
        await until(lambda: at.storage.reserved == 0)
        if cause in ("signal", "task"):
            await ticks(5)
            assert at.counts() == at.before
            again = await at.start("create")
            assert again.agent.status == "idle"


@pytest.mark.parametrize("event", [SESSION_CREATED, AGENT_CREATED, AGENT_SESSION_START])
@pytest.mark.parametrize("cause", ["signal", "owner", "loop"])
@aio
async def test_ended_from_inside_an_announcement_it_is_rolled_back(event: Any, cause: str) -> None:
    async with stage() as at:
        signal = CancelToken()
        endings: list[asyncio.Task[None]] = []

        def end(_: object) -> None:
            if cause == "signal":
                signal.cancel("enough")
            else:
                fiber = at.owner if cause == "owner" else at.row
                endings.append(asyncio.ensure_future(fiber.dispose()))

        at.it.ctx.on(event, end)
        making = at.start("create", signal=signal)
        await asyncio.gather(making, return_exceptions=True)
        if cause == "signal":
            assert isinstance(making.exception(), Cancelled)
        await asyncio.gather(*endings)
        await until(at.nothing_left)


@aio
async def test_a_failed_resume_leaves_what_waits_in_the_stored_inbox() -> None:
    async with stage() as at:
        seen: list[Session] = []
        at.it.ctx.on(SESSION_CREATED, seen.append)

        def veto(_: object) -> None:
            raise RuntimeError("not this one")

        undo = at.it.ctx.on(AGENT_CREATED, veto)
        with pytest.raises(RuntimeError, match="not this one"):
            await at.start("resume")
        assert len(data_of(seen[0], "agent/inbox/spliced")) == 1, "nothing was taken out of it"
        await until(at.nothing_left)
        assert at.storage.reserved == 0
        undo()
        handle = await at.start("resume")
        assert handle.agent.inbox.next_turn[0]["content"][0]["text"] == "waiting"  # type: ignore[typeddict-item]


@aio
async def test_a_load_that_fails_after_the_abort_is_nobodys_failure() -> None:
    async with stage() as at:
        at.storage.failure = RuntimeError("the disk is gone")
        signal = CancelToken()
        making = at.start("resume", signal=signal)
        await ticks(1)
        signal.cancel("enough")
        with pytest.raises(Cancelled):
            await making
        await ticks(10)
        assert at.nothing_left()


@pytest.mark.parametrize("ways", [("create", "create"), ("create", "resume"), ("resume", "resume")])
@aio
async def test_of_two_that_want_one_id_exactly_one_is_published(ways: tuple[str, str]) -> None:
    async with stage() as at:
        made = await asyncio.gather(*(at.start(way, setup=slow) for way in ways), return_exceptions=True)
        handles = [one for one in made if isinstance(one, AgentHandle)]
        assert len(handles) == 1
        assert at.it.ctx.use(AGENTS).list() == (handles[0].agent,)
        assert at.told.count("agent/created") == 1
        await handles[0].dispose()
        await until(lambda: at.storage.reserved == 0)
        assert at.nothing_left()


@aio
async def test_a_setup_that_ends_its_owner_does_not_wait_for_itself() -> None:
    async with stage() as at:

        async def setup(ctx: Context) -> None:
            await at.owner.dispose()

        with pytest.raises(Cancelled):
            await asyncio.wait_for(at.start("create", setup=setup), 5)
        await until(at.nothing_left)


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
@aio
async def test_a_setup_that_raises_what_ends_processes_has_failed(raised: BaseException) -> None:
    async with stage() as at:

        async def setup(ctx: Context) -> None:
            await ticks(1)
            raise raised

        with pytest.raises(KernelError, match="the setup of an agent raised"):
            await at.start("create", setup=setup)
        await until(at.nothing_left)


@aio
async def test_an_agent_takes_no_deliveries_before_it_is_published() -> None:
    async with stage() as at:
        refused: list[str] = []

        def setup(ctx: Context) -> None:
            agent: Any = ctx.scope
            for deliver in (agent.followup, agent.steer, agent.inject):
                with pytest.raises(AgentError) as caught:
                    deliver(user_message("too early"))
                refused.append(caught.value.code)

        at.it.ctx.on(AGENT_SESSION_START, lambda started: started.agent.followup(user_message("go")))
        handle = await at.start("create", setup=setup)
        await handle.agent.when_idle()
        assert refused == ["NOT_PUBLISHED"] * 3
        assert ends(handle.agent.session) == [{"kind": "completed"}]


# -- seeds ---------------------------------------------------------------------------------------


@aio
async def test_a_seed_is_the_beginning_of_the_log_and_its_inbox_is_not_inherited() -> None:
    async with loop(text("done")) as it:
        parent = await it.agent(session_id="parent")
        await it.prompt(parent, "first")
        parent.inject(user_message("for the parent alone"))
        seed = parent.session.snapshot(parent.session.length)
        child = await it.agent(
            session_id="child", parent_session="parent", seed=seed, seed_length=parent.session.length
        )
        assert child.session.header.parent_session == "parent"
        assert not child.inbox.has_pending
        await it.prompt(child, "second")
        assert [d["turn"] for d in data_of(child.session, "turn/start")] == [1, 2]
        own = await it.agent(session_id="own", seed=seed)
        assert own.inbox.has_pending, "what is no other session's is one's own"


@aio
async def test_a_seed_that_ends_inside_a_turn_is_refused() -> None:
    async with loop() as it:
        seed = [{"type": "turn/start", "seq": 0, "time": 0, "data": {"turn": 1}}]
        with pytest.raises(AgentError) as caught:
            await it.create(session_id="s", seed=seed)
        assert caught.value.code == "OPEN_TURN"
        assert not it.sessions.list()


# -- the end -------------------------------------------------------------------------------------


@aio
async def test_a_disposer_that_raises_is_told_and_everything_else_is_undone() -> None:
    async with stage() as at:
        handle = await at.start("create")
        order: list[str] = []

        def fail() -> None:
            order.append("failing")
            raise RuntimeError("cannot be undone")

        handle.agent.ctx.effect(lambda: lambda: order.append("first"))
        handle.agent.ctx.effect(lambda: fail)
        await asyncio.gather(handle.dispose(), handle.dispose(), return_exceptions=True)
        assert order == ["failing", "first"]
        assert at.nothing_left()
        await ticks(5)
        assert at.counts() == at.before


@aio
async def test_a_log_that_takes_nothing_any_more_does_not_keep_its_agent_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage() as at:
        handle = await at.start("create")
        handle.agent.inject(user_message("waits"))

        def refuse(*_: object, **__: object) -> None:
            raise OSError("no space left on device")

        monkeypatch.setattr(Session, "append", refuse)
        with pytest.raises(OSError, match="no space"):
            await handle.dispose()
        assert at.nothing_left()


@aio
async def test_who_waits_for_an_agent_that_ends_waits_until_its_id_is_free() -> None:
    async with stage() as at:
        agents = at.it.ctx.use(AGENTS)
        await agents.departed("s")
        handle = await at.start("create")
        await agents.departed("s")  # it is live and well
        go = asyncio.Event()

        async def linger() -> None:
            await go.wait()

        handle.agent.ctx.effect(lambda: linger)
        ending = asyncio.ensure_future(handle.dispose())
        waiting = asyncio.ensure_future(agents.departed("s"))
        await ticks(10)
        assert not waiting.done()
        go.set()
        await waiting
        await ending
        assert (await at.start("create")).agent.id == "s"


@aio
async def test_an_agent_that_somebody_built_is_registered_as_an_effect_of_its_owner() -> None:
    async with stage() as at:
        session = at.it.sessions.create("own")[0]

        class Built:
            id = "own"

            def __init__(self) -> None:
                self.session = session

        built: Any = Built()
        agent: Agent = built
        agents = at.owner.ctx.use(AGENTS)
        agents.register(agent)
        assert agents.get("own") is agent
        with pytest.raises(AgentError, match="live already"):
            agents.register(agent)
        await at.owner.dispose()
        assert at.it.ctx.use(AGENTS).get("own") is None
        assert at.told.count("agent/disposed") == 1


@aio
async def test_there_is_one_factory() -> None:
    async with loop() as it:
        with pytest.raises(KernelError):
            it.ctx.use(AGENTS).set_factory(it.ctx.use(AGENTS)._require_factory())
