"""How agents come and go: the publication transaction, its rollback, and the order of the end."""

import asyncio
from typing import Any

import pytest

from dsh.agent.contract import (
    AGENT_CREATED,
    AGENT_DISPOSED,
    AGENT_SESSION_START,
    AGENT_STATUS,
    Agent,
    AgentOptions,
    CreateAgent,
)
from dsh.agent.failure import AgentError
from dsh.agent.registry import AGENTS
from dsh.kernel import Cancelled, CancelToken, Context, create_scope
from dsh.session.error import SessionError
from dsh.session.message import user_message
from dsh.session.store import SESSION_CREATED, SESSION_DISPOSED, SESSION_FLUSH
from tests.agent.kit import Loop, calls, data_of, ends, loop, text, until
from tests.aio import aio


def watch(it: Loop) -> list[str]:
    """The lifecycle events, as they come."""
    told: list[str] = []
    it.ctx.on(SESSION_CREATED, lambda s: told.append("session/created"))
    it.ctx.on(SESSION_DISPOSED, lambda s: told.append("session/disposed"))
    it.ctx.on(AGENT_CREATED, lambda s: told.append("agent/created"))
    it.ctx.on(AGENT_DISPOSED, lambda s: told.append("agent/disposed"))
    it.ctx.on(AGENT_SESSION_START, lambda s: told.append(f"agent/session-start {s.source}"))
    return told


def nothing_left(it: Loop) -> bool:
    return not it.ctx.use(AGENTS).list() and not it.sessions.list()


@aio
async def test_publication_follows_its_order() -> None:
    async with loop() as it:
        told = watch(it)
        handle = await it.create(session_id="s-1", cwd="/ws")
        assert told == ["session/created", "agent/created", "agent/session-start startup"]
        assert it.ctx.use(AGENTS).get("s-1") is handle.agent
        assert handle.agent.session.header.cwd == "/ws"
        await handle.dispose()
        assert told[3:] == ["agent/disposed", "session/disposed"]
        assert nothing_left(it)


@aio
async def test_setup_runs_before_anybody_can_see_the_agent_and_commits_at_the_end() -> None:
    async with loop() as it:
        seen: list[Any] = []

        class Committed:
            def commit(self) -> None:
                seen.append(("commit", nothing_left(it)))

        async def setup(ctx: Context) -> Committed:
            await asyncio.sleep(0.001)
            seen.append(("setup", nothing_left(it)))
            ctx.on(AGENT_CREATED, lambda s: seen.append("created"))
            return Committed()

        await it.create(setup=setup)
        assert seen == [("setup", True), ("commit", True), "created"]


@pytest.mark.parametrize("where", ["setup", "commit", "session/created", "agent/created"])
@aio
async def test_a_failure_on_the_way_leaves_nothing_and_frees_the_id(where: str) -> None:
    async with loop() as it:
        agents = it.ctx.use(AGENTS)
        told = watch(it)
        is_failing = True

        def fail(*_: object) -> None:
            if is_failing:
                raise RuntimeError(where)

        class Commit:
            commit = fail

        def setup(ctx: Context) -> Any:
            if where == "setup":
                fail()
            return Commit() if where == "commit" else None

        if "/" in where:
            it.ctx.on(where, fail)
        with pytest.raises(RuntimeError, match=where):
            await it.create(session_id="s", setup=setup)
        assert nothing_left(it)
        assert told.count("session/created") == told.count("session/disposed")
        assert told.count("agent/created") == told.count("agent/disposed")
        is_failing = False
        assert (await it.create(session_id="s")).agent is agents.get("s")


@aio
async def test_of_two_creations_with_one_id_exactly_one_succeeds() -> None:
    async with loop() as it:

        async def setup(ctx: Context) -> None:
            await asyncio.sleep(0.001)

        made = await asyncio.gather(
            *(it.create(session_id="s", setup=setup) for _ in range(3)), return_exceptions=True
        )
        assert sum(not isinstance(one, BaseException) for one in made) == 1
        assert all(isinstance(one, SessionError | AgentError) for one in made if isinstance(one, Exception))
        assert len(it.sessions.list()) == 1


@pytest.mark.parametrize("limit", [0, -1, True, 2**53, 1.5])
@aio
async def test_a_token_limit_that_is_no_positive_integer_is_refused(limit: Any) -> None:
    async with loop() as it:
        told = watch(it)
        with pytest.raises(AgentError, match="maxTokens"):
            await it.create(options=AgentOptions(max_tokens=limit))
        assert told == []


@aio
async def test_a_cancelled_creation_is_rolled_back_and_a_late_setup_is_ignored() -> None:
    async with loop() as it:
        token, gate = CancelToken(), asyncio.Event()

        async def setup(ctx: Context) -> None:
            await gate.wait()
            raise RuntimeError("too late")

        making = asyncio.ensure_future(it.create(setup=setup, signal=token))
        await asyncio.sleep(0.001)
        token.cancel("enough")
        with pytest.raises(Cancelled):
            await making
        assert nothing_left(it)
        gate.set()
        await asyncio.sleep(0.001)


@aio
async def test_the_creation_token_is_of_no_effect_afterwards() -> None:
    async with loop() as it:
        token = CancelToken()
        agent = await it.agent(signal=token)
        token.cancel("late")
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]


@aio
async def test_dispose_closes_the_turn_then_flushes_then_leaves() -> None:
    gate = asyncio.Event()
    async with loop([gate.wait, *text("late")]) as it:
        handle = await it.create()
        order = watch(it)
        flushed: list[int] = []

        async def flush(session: Any) -> None:
            order.append("flush")
            flushed.append(session.length)

        it.ctx.on(SESSION_FLUSH, flush)
        scoped: list[Any] = []
        handle.agent.ctx.on(AGENT_DISPOSED, scoped.append)
        handle.agent.ctx.effect(lambda: lambda: order.append("scope"))
        handle.agent.followup(user_message("go"))
        await until(lambda: it.model.requests)
        first, second = asyncio.ensure_future(handle.dispose()), asyncio.ensure_future(handle.dispose())
        await asyncio.sleep(0.001)
        assert not first.done() and not second.done(), "the end waits for the turn"
        gate.set()
        await asyncio.gather(first, second)
        assert order == ["scope", "flush", "agent/disposed", "session/disposed"]
        assert ends(handle.agent.session) == [{"kind": "aborted", "reason": {"kind": "disposed"}}]
        assert flushed == [handle.agent.session.length]
        assert scoped == [], "an agent's own listeners never hear of its end"
        await handle.dispose()


@aio
async def test_a_user_cancel_before_the_end_stays_the_cause() -> None:
    gate = asyncio.Event()
    async with loop([gate.wait, *text("late")]) as it:
        handle = await it.create()
        handle.agent.followup(user_message("go"))
        await until(lambda: it.model.requests)
        handle.agent.cancel({"kind": "user"})
        ending = asyncio.ensure_future(handle.dispose())
        gate.set()
        await ending
        assert ends(handle.agent.session)[0]["reason"] == {"kind": "user"}


@aio
async def test_the_end_waits_for_a_tool_that_does_not_cooperate() -> None:
    async with loop(calls(("c1", "slow", "{}"))) as it:
        handle = await it.create()
        started, gate = asyncio.Event(), asyncio.Event()

        async def slow(args: Any, exec: Any) -> str:  # noqa: A002
            started.set()
            await gate.wait()
            return ""

        it.tool("slow", slow)
        handle.agent.followup(user_message("go"))
        await started.wait()
        ending = asyncio.ensure_future(handle.dispose())
        for _ in range(100):
            await asyncio.sleep(0)
        assert not ending.done()
        assert data_of(handle.agent.session, "tool/result") == []
        gate.set()
        await ending
        assert data_of(handle.agent.session, "tool/result")[0]["error"]["code"] == "ABORTED"


@pytest.mark.parametrize("who", ["owner", "loop"])
@aio
async def test_an_agent_ends_with_its_owner_and_with_the_loop(who: str) -> None:
    async with loop([asyncio.Event().wait]) as it:
        made: list[Agent] = []

        async def own(ctx: Context) -> None:
            handle = await ctx.use(AGENTS).create(CreateAgent(options=AgentOptions(provider="p", model="m")))
            made.append(handle.agent)

        owner = it.ctx.inject([AGENTS], own)
        await owner
        agent = made[0]
        it.model.replies = [[agent_waits(agent)]]
        agent.followup(user_message("go"))
        await until(lambda: it.model.requests)
        fiber = owner if who == "owner" else agent.ctx.fiber.parent.fiber  # type: ignore[union-attr]
        await fiber.dispose()
        assert nothing_left(it)
        assert ends(agent.session) == [{"kind": "aborted", "reason": {"kind": "disposed"}}]


def agent_waits(agent: Agent) -> Any:
    """A model that says nothing until the turn is cancelled."""

    async def wait() -> None:
        while agent.status == "running":
            await asyncio.sleep(0.001)
            if agent._phase.token.cancelled:  # type: ignore[attr-defined]
                return

    return wait


@aio
async def test_no_factory_is_an_error_that_names_the_row() -> None:
    ctx = Context()
    from dsh.agent.registry import AgentRegistry

    await ctx.plugin(AgentRegistry)
    with pytest.raises(AgentError) as caught:
        await ctx.use(AGENTS).create(CreateAgent())
    assert "agent-loop" in caught.value.hint
    await ctx.dispose()


@aio
async def test_ownership_follows_the_scope_that_created_and_roots_have_no_live_owner() -> None:
    async with loop() as it:
        agents = it.ctx.use(AGENTS)
        parent = await it.create(session_id="parent")
        child = await parent.agent.ctx.use(AGENTS).create(CreateAgent(session_id="child"))
        assert agents.is_owned_by("child", parent.agent)
        assert not agents.is_owned_by("parent", child.agent)
        assert agents.roots() == (parent.agent,)
        assert agents.list() == (parent.agent, child.agent)
        await parent.dispose()
        assert agents.list() == (), "children end with their parent"


@aio
async def test_an_agent_made_in_the_scope_of_something_else_is_a_root() -> None:
    class Group:
        pass

    async with loop() as it:
        scope = await create_scope(it.ctx, Group())
        row = scope.fiber.ctx.extend(scope=scope.key).inject([AGENTS], lambda ctx: None)
        await row
        agents = it.ctx.use(AGENTS)
        handle = await row.ctx.use(AGENTS).create(CreateAgent(session_id="s"))
        assert row.ctx.scope is scope.key
        assert agents.roots() == (handle.agent,)


@aio
async def test_agents_hear_only_of_themselves() -> None:
    async with loop(text("done")) as it:
        one, two = await it.agent(), await it.agent()
        heard: list[str] = []
        one.ctx.on(AGENT_STATUS, lambda changed: heard.append(changed.agent.id))
        await it.prompt(two, "go")
        await it.prompt(one, "go")
        assert heard == [one.id, one.id]


@aio
async def test_parallel_agents_never_see_each_others_initiator() -> None:
    from dsh.agent.initiator import current_initiator

    async with loop(calls(("c1", "who", "{}")), calls(("c1", "who", "{}")), text("done")) as it:
        pairs: list[bool] = []

        async def who(args: Any, exec: Any) -> str:  # noqa: A002
            for _ in range(5):
                await asyncio.sleep(0)
                pairs.append(current_initiator() is exec.agent)
            return ""

        it.tool("who", who)
        one, two = await it.agent(), await it.agent()
        await asyncio.gather(it.prompt(one, "go"), it.prompt(two, "go"))
        assert len(pairs) == 10 and all(pairs)


@aio
async def test_agents_that_came_and_went_leave_nothing_behind() -> None:
    async with loop(text("done")) as it:
        first = await it.create()
        row = first.agent.ctx.fiber.parent.fiber  # type: ignore[union-attr]
        await first.dispose()
        kernel = it.ctx.kernel
        before = (len(row.effects), kernel.events.count(), len(kernel.runtimes), len(it.ctx.fiber.effects))
        for _ in range(5):
            handle = await it.create()
            handle.agent.ctx.on(AGENT_CREATED, lambda s: None)
            await it.prompt(handle.agent, "go")
            await handle.dispose()
        await asyncio.sleep(0)
        assert before == (
            len(row.effects),
            kernel.events.count(),
            len(kernel.runtimes),
            len(it.ctx.fiber.effects),
        )


@aio
async def test_a_tool_that_unloads_the_loop_from_inside_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dsh.agent import grace

    monkeypatch.setattr(grace, "GRACE_S", 0.02)
    async with loop(calls(("c1", "unload", "{}"))) as it:
        agent = await it.agent()
        row = agent.ctx.fiber.parent.fiber  # type: ignore[union-attr]

        async def unload(args: Any, exec: Any) -> str:  # noqa: A002
            await row.dispose()
            return "gone"

        it.tool("unload", unload)
        await asyncio.wait_for(it.prompt(agent, "go"), 5)
        await row.dispose()
        assert nothing_left(it)
        assert ends(agent.session) == [{"kind": "aborted", "reason": {"kind": "disposed"}}]


@aio
async def test_configured_agents_start_with_the_row() -> None:
    row = {"id": "worker", "provider": "p", "model": "m", "cwd": "/ws"}
    async with loop(config={"agents": [row]}) as it:
        await until(it.ctx.use(AGENTS).list)
        (agent,) = it.ctx.use(AGENTS).list()
        assert agent.id.startswith("worker-session-")
        assert agent.options.model == "m"
