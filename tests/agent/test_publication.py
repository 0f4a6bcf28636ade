"""The publication of an agent: whatever happens at whatever moment, nothing half made is left."""

import asyncio
from typing import Any

import pytest

from dsh.agent.contract import (
    AGENT_CREATED,
    AGENT_DISPOSED,
    AGENT_SESSION_START,
    AgentHandle,
)
from dsh.agent.failure import AgentError
from dsh.agent.registry import AGENTS, AgentRegistry
from dsh.errors import KernelError
from dsh.kernel import Cancelled, CancelToken, Context, Event
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.store import SESSION_CREATED
from tests.agent.kit import data_of, ends, loop, text, until
from tests.agent.stage import slow, stage, ticks
from tests.aio import aio


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


ANNOUNCED: list[Event[Any, None]] = [SESSION_CREATED, AGENT_CREATED, AGENT_SESSION_START]


@pytest.mark.parametrize("event", ANNOUNCED)
@pytest.mark.parametrize("cause", ["signal", "owner", "loop"])
@aio
async def test_ended_from_inside_an_announcement_it_is_rolled_back(event: Any, cause: str) -> None:
    async with stage() as at:
        signal = CancelToken()
        endings: list[asyncio.Task[None]] = []
        told: list[str] = []
        for announced in ANNOUNCED:
            at.it.ctx.on(announced, lambda _, name=announced.name: told.append(name))

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
        if cause == "signal":
            begun = ANNOUNCED[: ANNOUNCED.index(event) + 1]
            assert told == [one.name for one in begun], "nothing is announced of what is on its way out"


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


@pytest.mark.parametrize("answer", [3, "text", object()])
@aio
async def test_a_setup_that_answers_anything_else_is_told_what_is_expected(answer: Any) -> None:
    async with stage() as at:
        with pytest.raises(AgentError) as caught:
            await at.start("create", setup=lambda ctx: answer)
        assert type(answer).__name__ in caught.value.message
        assert "commit" in caught.value.hint
        await until(at.nothing_left)


@aio
async def test_who_leaves_while_he_is_announced_stays_until_all_have_heard_of_him() -> None:
    ctx = Context()
    await ctx.plugin(AgentRegistry)
    agents = ctx.use(AGENTS)
    order: list[str] = []

    class Built:
        id = "own"
        session = Session(SessionHeader(id="own", created_at=0))

    built: Any = Built()
    leave = agents.enter(built, ctx)
    ctx.on(AGENT_CREATED, lambda _: leave())
    ctx.on(
        AGENT_CREATED, lambda s: order.append(f"heard of {s.agent.id}, live: {agents.get('own') is built}")
    )
    ctx.on(AGENT_DISPOSED, lambda s: order.append(f"end of {s.agent.id}, live: {agents.get('own') is built}"))

    agents.announce(built)
    told = ["heard of own, live: True", "end of own, live: False"]
    assert order == told
    leave()
    assert order == told
    await ctx.dispose()


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
