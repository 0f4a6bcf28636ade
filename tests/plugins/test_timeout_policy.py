"""Row `timeout-policy`, mounted: its own deadline, and nobody else's."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from dsh.errors import CompositionError
from dsh.kernel import CancelToken, Context
from dsh.plugins import timeout_policy
from dsh.session.message import user_message
from dsh.tools.event import TOOLS_EXECUTE
from dsh.tools.execution import ToolExecution, ToolFailure
from dsh.tools.registry import TOOLS, ToolRegistry
from tests.agent.kit import calls, data_of, ends, loop
from tests.agent.kit import text as model_text
from tests.aio import aio_in_virtual_time as aio
from tests.tools.kit import agent_in, call, code, text, tool, value


async def mounted(**config: Any) -> tuple[Context, ToolRegistry]:
    ctx = Context()
    tools = ToolRegistry(ctx)
    await ctx.plugin(timeout_policy, config, inject=[TOOLS])
    return ctx, tools


async def until_cancelled(_: Any, execution: ToolExecution) -> str:
    gate = asyncio.Event()
    execution.signal.on_cancel(lambda _: gate.set())
    await asyncio.wait_for(gate.wait(), 5)
    return "stopped"


@aio
async def test_a_declared_deadline_cancels_the_body_and_is_the_result() -> None:
    ctx, tools = await mounted()
    tools.register(tool("t", until_cancelled, timeout_ms=10))

    result = await tools.run(call())

    assert text(result) == "Error: tool call timed out after 10ms"
    assert isinstance(result, ToolFailure)
    assert result.info == {"name": "ToolTimeoutError", "code": "TOOL_TIMEOUT"}
    await ctx.dispose()


@aio
async def test_the_result_comes_only_after_the_body_has_ended() -> None:
    ctx, tools = await mounted()
    order: list[str] = []

    async def stubborn(_: Any, execution: ToolExecution) -> str:
        await until_cancelled(None, execution)
        await asyncio.sleep(0.02)
        order.append("body")
        return "late"

    tools.register(tool("t", stubborn, timeout_ms=5))
    result = await tools.run(call())
    order.append("result")

    assert order == ["body", "result"]
    assert code(result) == "TOOL_TIMEOUT"
    await ctx.dispose()


@aio
async def test_a_failure_after_the_deadline_is_the_timeout_too() -> None:
    ctx, tools = await mounted()

    async def fails(_: Any, execution: ToolExecution) -> str:
        await until_cancelled(None, execution)
        raise ValueError("killed")

    tools.register(tool("t", fails, timeout_ms=5))

    assert code(await tools.run(call())) == "TOOL_TIMEOUT"
    await ctx.dispose()


@aio
async def test_tools_that_declare_nothing_get_the_default() -> None:
    ctx, tools = await mounted(defaultTimeoutMs=5)
    tools.register(tool("t", until_cancelled))

    assert text(await tools.run(call())) == "Error: tool call timed out after 5ms"
    await ctx.dispose()


@aio
async def test_none_means_that_the_tool_bounds_itself() -> None:
    ctx, tools = await mounted(defaultTimeoutMs=1)

    async def slow(_: Any, execution: ToolExecution) -> str:
        await asyncio.sleep(0.02)
        return "done" if not execution.signal.cancelled else "cancelled"

    tools.register(tool("t", slow, timeout_ms=None))

    assert value(await tools.run(call())) == "done"
    await ctx.dispose()


@aio
async def test_a_call_in_time_is_left_alone_and_its_token_is_restored() -> None:
    ctx, tools = await mounted()
    token = CancelToken()
    inside: list[CancelToken] = []

    async def quick(_: Any, execution: ToolExecution) -> str:
        inside.append(execution.signal)
        return "done"

    async def around(execution: ToolExecution, following: Callable[[], Any]) -> Any:
        result = await following()
        assert execution.signal is token
        return result

    ctx.on(TOOLS_EXECUTE, around, prepend=True)
    tools.register(tool("t", quick, timeout_ms=60_000))
    invocation = tools.begin(call(signal=token))
    await invocation.prepare()
    await invocation.dispatch()

    assert invocation.execution.signal is token and inside[0] is not token
    assert token._callbacks == []
    assert value(await invocation.finalize()) == "done"
    await ctx.dispose()


@aio
async def test_the_callers_cancellation_is_no_timeout() -> None:
    ctx, tools = await mounted()
    token = CancelToken()
    tools.register(tool("t", until_cancelled, timeout_ms=2_000))
    task = asyncio.create_task(tools.run(call(signal=token)))
    await asyncio.sleep(0.001)
    token.cancel("user")

    assert code(await task) == "ABORTED"
    await ctx.dispose()


@pytest.mark.parametrize("outside", [False, True])
@aio
async def test_a_deadline_of_somebody_else_is_no_timeout_of_ours(outside: bool) -> None:
    ctx, tools = await mounted()
    tools.register(tool("t", until_cancelled, timeout_ms=2_000))

    async def foreign(execution: ToolExecution, following: Callable[[], Any]) -> Any:
        outer = execution.signal
        execution.signal = token = CancelToken.any_of(outer)
        asyncio.get_running_loop().call_later(0.005, token.cancel, timeout_policy.Deadline(5))
        try:
            return await following()
        finally:
            execution.signal = outer

    ctx.on(TOOLS_EXECUTE, foreign, prepend=outside)

    assert code(await tools.run(call())) == "ABORTED"
    await ctx.dispose()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
@aio
async def test_an_exit_of_a_wrapper_further_in_is_the_calls_failure(error: BaseException) -> None:
    ctx, tools = await mounted()
    tools.register(tool())

    async def leaves(execution: ToolExecution, following: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        raise error

    ctx.on(TOOLS_EXECUTE, leaves)

    assert text(await tools.run(call())).startswith("Error: a listener of tools/execute failed: ")
    await ctx.dispose()


@pytest.mark.parametrize("given", [0, -1, 2**31, 1.5, "10", True])
@aio
async def test_what_the_schema_refuses(given: Any) -> None:
    with pytest.raises(CompositionError):
        await mounted(defaultTimeoutMs=given)
    with pytest.raises(CompositionError):
        await mounted(graceMs=given)


class Taken:
    """Takes over what is given up, as an agent does."""

    def __init__(self) -> None:
        self.tasks: dict[str, asyncio.Task[Any]] = {}

    def __call__(self, task: "asyncio.Task[Any]", who: str) -> None:
        self.tasks[who] = task


async def never_ends(_: Any, execution: ToolExecution) -> str:
    await asyncio.sleep(3600)
    return "an hour later"


@aio
async def test_a_body_that_outlasts_deadline_and_grace_is_left_behind() -> None:
    ctx, tools = await mounted(graceMs=50)
    tools.register(tool("t", never_ends, timeout_ms=10))
    taken = Taken()
    start = asyncio.get_running_loop().time()

    result = await tools.run(call(give_up=taken))

    assert round((asyncio.get_running_loop().time() - start) * 1000) == 60
    assert isinstance(result, ToolFailure)
    assert result.info == {"name": "ToolOutcomeUnknownError", "code": "TOOL_OUTCOME_UNKNOWN"}
    assert text(result).startswith(
        "Error: the call did not end within 50ms after its deadline of 10ms, so the outcome"
    )
    assert list(taken.tasks) == ["tool t"] and not taken.tasks["tool t"].done()
    taken.tasks["tool t"].cancel()
    await ctx.dispose()


@aio
async def test_without_an_agent_the_row_keeps_what_is_left_behind_until_it_goes() -> None:
    ctx, tools = await mounted(graceMs=50)
    ended: list[str] = []

    async def body(_: Any, __: ToolExecution) -> str:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cut off")
        return ""

    tools.register(tool("t", body, timeout_ms=10))

    assert code(await tools.run(call())) == "TOOL_OUTCOME_UNKNOWN"
    assert ended == []
    await ctx.dispose()
    assert ended == ["cut off"]


@aio
async def test_a_wrapper_further_in_that_hangs_before_any_body_goes_with_the_row_too() -> None:
    ctx, tools = await mounted(graceMs=50)
    ended: list[str] = []

    async def hangs(_: ToolExecution, __: Any) -> Any:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cut off")

    tools.register(tool("t", never_ends, timeout_ms=10))
    ctx.on(TOOLS_EXECUTE, hangs)

    assert code(await tools.run(call())) == "TOOL_OUTCOME_UNKNOWN"
    await ctx.dispose()
    assert ended == ["cut off"]


@aio
async def test_the_deadline_is_that_of_the_tool_that_the_agent_sees() -> None:
    ctx, tools = await mounted()
    agent, scope = await agent_in(ctx)
    tools.register(tool("t", until_cancelled, timeout_ms=3_000))
    scope.ctx.use(TOOLS).register(tool("t", until_cancelled, timeout_ms=10))

    assert text(await tools.run(call(agent=agent))) == "Error: tool call timed out after 10ms"
    assert text(await tools.run(call())) == "Error: tool call timed out after 3000ms"
    await ctx.dispose()


@aio
async def test_the_grace_is_five_seconds_unless_said_otherwise() -> None:
    ctx, tools = await mounted()
    tools.register(tool("t", never_ends, timeout_ms=1_000))
    start = asyncio.get_running_loop().time()

    await tools.run(call())

    assert round(asyncio.get_running_loop().time() - start) == 6
    await ctx.dispose()


@aio
async def test_what_a_body_says_after_it_was_left_behind_reaches_nobody() -> None:
    ctx, tools = await mounted(graceMs=5)
    gate = asyncio.Event()
    seen: list[ToolExecution] = []

    async def late(_: Any, execution: ToolExecution) -> str:
        seen.append(execution)
        await gate.wait()
        execution.defer_context(user_message("too late"))
        execution.conclude_turn()
        return "late"

    tools.register(tool("t", late, timeout_ms=5))
    token, taken = CancelToken(), Taken()
    result = await tools.run(call(signal=token, give_up=taken))
    gate.set()
    await asyncio.wait(taken.tasks.values())

    assert result.additional_contexts == () and not result.concludes_turn
    assert seen[0].signal is token, "the signal stays the caller's"
    await ctx.dispose()


@aio
async def test_a_body_that_ends_its_own_task_has_failed() -> None:
    ctx, tools = await mounted()

    async def ends_itself(_: Any, __: ToolExecution) -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)
        return ""

    tools.register(tool("t", ends_itself))

    result = await tools.run(call())

    assert code(result) is None
    assert "was cancelled" in text(result)
    await ctx.dispose()


@aio
async def test_the_end_of_the_task_of_a_call_ends_its_body() -> None:
    ctx, tools = await mounted()
    ended: list[str] = []

    async def body(_: Any, __: ToolExecution) -> str:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append("cut off")
        return ""

    tools.register(tool("t", body))
    task = asyncio.create_task(tools.run(call()))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait((task,))
    await asyncio.sleep(0)

    assert task.cancelled() and ended == ["cut off"]
    await ctx.dispose()


@aio
async def test_what_a_body_raises_when_the_task_of_its_call_ends_is_no_lost_exception() -> None:
    ctx, tools = await mounted()
    lost: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: lost.append(context))

    async def raises_late(_: ToolExecution, __: Any) -> Any:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise ValueError("too late") from None

    tools.register(tool("t", never_ends))
    ctx.on(TOOLS_EXECUTE, raises_late)
    task = asyncio.create_task(tools.run(call()))
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait((task,))
    del task
    await asyncio.sleep(0)
    gc.collect()

    assert lost == []
    await ctx.dispose()


@aio
async def test_bodies_within_a_deadline_know_whose_call_they_are() -> None:
    from contextvars import ContextVar

    ctx, tools = await mounted()
    whose: ContextVar[str] = ContextVar("whose", default="nobody's")

    async def body(_: Any, __: ToolExecution) -> str:
        return whose.get()

    tools.register(tool("t", body))
    whose.set("mine")

    assert value(await tools.run(call())) == "mine"
    await ctx.dispose()


@aio
async def test_a_call_that_its_deadline_gave_up_leaves_the_agent_degraded_and_usable() -> None:
    asked = calls(("c1", "stuck", "{}"), ("c2", "quick", "{}"))
    async with loop(asked, model_text("done"), rows=[(timeout_policy, {"graceMs": 50})]) as it:

        async def stuck(_: Any, __: ToolExecution) -> str:
            await asyncio.sleep(3600)
            return ""

        async def quick(_: Any, __: ToolExecution) -> str:
            return "here"

        it.tool("stuck", stuck, timeout_ms=10)
        it.tool("quick", quick)
        agent = await it.agent()
        await it.prompt(agent, "go")

        results = data_of(agent.session, "tool/result")
        assert [found.get("error", {}).get("code") for found in results] == ["TOOL_OUTCOME_UNKNOWN", None]
        assert agent.degraded == ("tool stuck",)
        assert ends(agent.session) == [{"kind": "completed"}]
        await it.prompt(agent, "again")
        assert ends(agent.session)[1:] == [{"kind": "completed"}]
