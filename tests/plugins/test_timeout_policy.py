"""Row `timeout-policy`, mounted: its own deadline, and nobody else's."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dsh.errors import CompositionError
from dsh.kernel import CancelToken, Context
from dsh.plugins import timeout_policy
from dsh.tools.event import TOOLS_EXECUTE
from dsh.tools.execution import ToolExecution, ToolFailure
from dsh.tools.registry import TOOLS, ToolRegistry
from tests.aio import aio_in_virtual_time as aio
from tests.tools.kit import call, code, text, tool, value


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
    await asyncio.sleep(0)
    token.cancel("user")

    assert code(await task) == "ABORTED"
    await ctx.dispose()


@aio
async def test_a_deadline_of_somebody_else_is_no_timeout_of_ours() -> None:
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

    ctx.on(TOOLS_EXECUTE, foreign)

    assert code(await tools.run(call())) == "ABORTED"
    await ctx.dispose()


@pytest.mark.parametrize("given", [0, -1, 2**31, 1.5, "10", True])
@aio
async def test_what_the_schema_refuses(given: Any) -> None:
    with pytest.raises(CompositionError):
        await mounted(defaultTimeoutMs=given)
