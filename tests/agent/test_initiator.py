"""Who caused the running code: one value per chain, in every task it starts, and gone with its service."""

import asyncio
import gc
from typing import Any
from weakref import ref

import pytest

from dsh.agent.contract import AGENT_STATUS, Agent, AgentOptions, CreateAgent
from dsh.agent.failure import AgentError
from dsh.agent.registry import AGENTS, AgentRegistry
from dsh.kernel import Context
from tests.agent.kit import Loop, calls, loop, text, until
from tests.aio import aio, aio_in_virtual_time


async def alone() -> tuple[Context, Any, AgentRegistry]:
    """A registry without a loop, and the fiber of its row."""
    ctx = Context()
    fiber = ctx.plugin(AgentRegistry)
    await fiber
    return ctx, fiber, ctx.use(AGENTS)


class Named:
    """Stands for an agent where nothing but its identity counts."""


def somebody() -> Agent:
    who: Any = Named()
    return who  # type: ignore[no-any-return]


@aio
async def test_the_value_holds_for_what_is_called_and_for_what_it_awaits_and_no_longer() -> None:
    ctx, _, agents = await alone()
    one, two = somebody(), somebody()
    seen: list[Agent | None] = []

    async def work() -> str:
        await asyncio.sleep(0)
        seen.append(agents.current_initiator())
        seen.append(await agents.with_initiator(two, inner))
        seen.append(agents.without_initiator(agents.current_initiator))
        seen.append(agents.require_initiator())
        return "done"

    async def inner() -> Agent | None:
        await asyncio.sleep(0)
        return agents.current_initiator()

    assert await agents.with_initiator(one, work) == "done"
    assert seen == [one, two, None, one]
    assert agents.with_initiator(one, agents.current_initiator) is one
    assert agents.current_initiator() is None
    with pytest.raises(AgentError) as caught:
        agents.require_initiator()
    assert caught.value.code == "NO_INITIATOR"
    await ctx.dispose()


@aio
async def test_what_outlives_an_agent_does_not_keep_it() -> None:
    """A timer, even one that was cancelled, stays with the event loop until it is due."""
    async with loop(calls(("c1", "look", "{}")), text("done")) as it:
        timers: list[asyncio.TimerHandle] = []
        seen: list[Agent | None] = []

        async def look(args: Any, exec: Any) -> str:  # noqa: A002
            timers.append(asyncio.get_running_loop().call_later(3600, print))
            seen.append(it.ctx.use(AGENTS).current_initiator())
            return "looked"

        it.tool("look", look)
        handle = await it.create()
        await it.prompt(handle.agent, "go")
        assert seen.pop() is handle.agent
        agent, log = ref(handle.agent), ref(handle.agent.session)
        await handle.dispose()
        it.model.requests.clear()
        del handle
        gc.collect()
        assert (agent(), log()) == (None, None)
        timers.pop().cancel()


@aio
async def test_who_is_named_is_kept_until_the_work_on_his_behalf_is_done() -> None:
    ctx, _, agents = await alone()

    async def work() -> Agent | None:
        await asyncio.sleep(0)
        gc.collect()
        return agents.current_initiator()

    assert await agents.with_initiator(somebody(), work) is not None
    assert await agents.with_initiator(somebody(), lambda: asyncio.ensure_future(work())) is not None
    await ctx.dispose()


@aio
async def test_a_failure_gives_the_value_back() -> None:
    ctx, _, agents = await alone()

    def fail() -> None:
        raise RuntimeError("no")

    async def fail_later() -> None:
        await asyncio.sleep(0)
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        agents.with_initiator(somebody(), fail)
    with pytest.raises(RuntimeError):
        await agents.with_initiator(somebody(), fail_later)
    assert agents.current_initiator() is None
    await ctx.dispose()


@aio
async def test_tasks_inherit_it_and_what_is_shared_is_started_without_it() -> None:
    ctx, _, agents = await alone()
    one = somebody()
    seen: dict[str, Agent | None] = {}

    async def note(name: str) -> None:
        await asyncio.sleep(0)
        seen[name] = agents.current_initiator()

    def start() -> list[asyncio.Task[None]]:
        own = asyncio.create_task(note("own"))
        return [own, agents.without_initiator(lambda: asyncio.create_task(note("shared")))]

    await asyncio.gather(*agents.with_initiator(one, start))
    assert seen == {"own": one, "shared": None}
    await ctx.dispose()


@aio
async def test_a_timer_that_a_tool_creates_lazily_sees_no_agent() -> None:
    async with loop(calls(("c1", "tick", "{}")), text("done")) as it:
        agents = it.ctx.use(AGENTS)
        seen: list[Agent | None] = []
        told = asyncio.Event()

        def ring() -> None:
            seen.append(agents.current_initiator())
            told.set()

        async def tick(args: Any, exec: Any) -> str:  # noqa: A002
            seen.append(agents.current_initiator())
            agents.without_initiator(lambda: asyncio.get_running_loop().call_soon(ring))
            await told.wait()
            return ""

        it.tool("tick", tick)
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert seen == [agent, None]


@aio
async def test_the_whole_driver_runs_on_behalf_of_its_agent_its_listeners_included() -> None:
    async with loop(text("done")) as it:
        agents = it.ctx.use(AGENTS)
        seen: list[tuple[str, Agent | None]] = []
        agent = await it.agent()
        agent.ctx.on(AGENT_STATUS, lambda s: seen.append((s.status, agents.current_initiator())))
        await it.prompt(agent, "go")
        assert seen == [("running", agent), ("idle", agent)]
        assert agents.current_initiator() is None


@aio
async def test_while_a_child_is_made_the_value_is_the_parent_that_causes_it() -> None:
    async with loop(calls(("c1", "spawn", "{}")), text("done")) as it:
        agents = it.ctx.use(AGENTS)
        seen: list[tuple[object, object]] = []

        async def setup(ctx: Context) -> None:
            await asyncio.sleep(0)
            seen.append((agents.current_initiator(), ctx.scope))

        async def spawn(args: Any, exec: Any) -> str:  # noqa: A002
            made = await exec.agent.ctx.use(AGENTS).create(CreateAgent(options=OPTIONS, setup=setup))
            seen.append((made.agent, agents.is_owned_by(made.agent.id, exec.agent)))
            return ""

        it.tool("spawn", spawn)
        parent = await it.agent()
        await it.prompt(parent, "go")
        (cause, scope), (child, is_owned) = seen
        assert cause is parent
        assert scope is child
        assert is_owned is True


OPTIONS = AgentOptions(provider="p", model="m")


# -- the end of the service ----------------------------------------------------------------------


@aio
async def test_its_end_waits_for_what_is_open_and_then_names_nobody() -> None:
    ctx, fiber, agents = await alone()
    one, go = somebody(), asyncio.Event()
    seen: list[Agent | None] = []

    async def work() -> None:
        asyncio.get_running_loop().create_task(outlive())
        await go.wait()
        seen.append(agents.current_initiator())

    async def outlive() -> None:
        await until(lambda: ending.done())
        seen.append(agents.current_initiator())

    working = asyncio.ensure_future(agents.with_initiator(one, work))
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(fiber.dispose())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not ending.done()
    go.set()
    await ending
    await working
    await until(lambda: len(seen) == 2)
    assert seen == [one, None]
    await ctx.dispose()


@aio
async def test_nothing_is_begun_once_it_goes_and_a_call_without_anybody_still_is() -> None:
    ctx, fiber, agents = await alone()
    go = asyncio.Event()
    working = asyncio.ensure_future(agents.with_initiator(somebody(), go.wait))
    late = agents.with_initiator(somebody(), go.wait)
    await asyncio.sleep(0)
    ending = asyncio.ensure_future(fiber.dispose())
    await asyncio.sleep(0)

    with pytest.raises(AgentError) as caught:
        agents.with_initiator(somebody(), lambda: None)
    assert caught.value.code == "INITIATORS_GONE"
    with pytest.raises(AgentError):
        await late
    assert agents.without_initiator(lambda: "cleaned up") == "cleaned up"
    go.set()
    await asyncio.gather(working, ending)
    await ctx.dispose()


@aio
async def test_nothing_is_begun_either_once_somebody_goes_whom_it_is_part_of() -> None:
    ctx = Context()
    codes: list[str] = []

    def outer(inner: Context) -> None:
        inner.plugin(AgentRegistry)

        async def last() -> None:
            agents = ctx.get(AGENTS)
            assert agents is not None
            with pytest.raises(AgentError) as caught:
                agents.with_initiator(somebody(), lambda: None)
            codes.append(caught.value.code)

        inner.effect(lambda: last)

    row = ctx.plugin(outer)
    await row
    await asyncio.sleep(0)
    await row.dispose()
    assert codes == ["INITIATORS_GONE"]
    await ctx.dispose()


@pytest.mark.parametrize("depth", [1, 3])
@aio_in_virtual_time
async def test_the_chain_that_ends_it_does_not_wait_for_itself(depth: int) -> None:
    begun_s = asyncio.get_running_loop().time()
    ctx, fiber, agents = await alone()

    async def work(left: int) -> str:
        if left:
            return await agents.with_initiator(somebody(), lambda: work(left - 1))
        await fiber.dispose()
        return "ended"

    assert await work(depth) == "ended"
    assert asyncio.get_running_loop().time() == begun_s
    await ctx.dispose()


@aio_in_virtual_time
async def test_two_chains_that_both_end_it_do_not_hang() -> None:
    ctx, fiber, agents = await alone()

    async def end() -> None:
        await asyncio.sleep(0)
        await fiber.dispose()

    await asyncio.gather(*(agents.with_initiator(somebody(), end) for _ in range(2)))
    await ctx.dispose()


@aio
async def test_a_task_handed_out_of_a_boundary_is_waited_for_as_well() -> None:
    ctx, fiber, agents = await alone()
    go = asyncio.Event()
    task = agents.with_initiator(somebody(), lambda: asyncio.create_task(go.wait()))
    ending = asyncio.ensure_future(fiber.dispose())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not ending.done()
    go.set()
    await asyncio.gather(task, ending)
    await ctx.dispose()


@aio
async def test_a_tool_that_unloads_the_registry_from_inside_does_not_hang(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from dsh.agent import grace

    monkeypatch.setattr(grace, "GRACE_S", 0.02)
    async with loop(calls(("c1", "unload", "{}"))) as it:
        agent = await it.agent()

        async def unload(args: Any, exec: Any) -> str:  # noqa: A002
            await registry_fiber(it).dispose()
            return "gone"

        it.tool("unload", unload)
        agent.followup(_prompt())
        await asyncio.wait_for(agent.when_idle(), 5)
        assert agent.status == "idle"


def registry_fiber(it: Loop) -> Any:
    return it.ctx.use(AGENTS).owner_ctx.fiber


def _prompt() -> Any:
    from dsh.session.message import user_message

    return user_message("go")
