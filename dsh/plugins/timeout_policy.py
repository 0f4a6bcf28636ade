"""Row `timeout-policy`: a deadline for every tool call that does not bound itself.

The deadline cancels the call's token and then waits for the body; whatever the body makes of it, the
result is the timeout. A deadline further in or out counts as ordinary cancellation here.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from dsh.capabilities.bounds import TimerMs
from dsh.kernel import CancelToken, Context
from dsh.tools.error import ToolTimeoutError
from dsh.tools.event import TOOLS_EXECUTE
from dsh.tools.execution import ToolExecution, ToolResult
from dsh.tools.outcome import failure_of
from dsh.tools.registry import TOOLS

inject = [TOOLS]
provide = ()


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    default_timeout_ms: TimerMs = 1_800_000
    """For tools that say nothing about a deadline; half an hour is beyond any build or test run."""


class Deadline(msgspec.Struct, frozen=True, eq=False):
    """The reason of a token that ran out of time. Compared by identity: each call has its own."""

    timeout_ms: float


def apply(ctx: Context, config: Config) -> None:
    tools = ctx.use(TOOLS)

    async def bounded(execution: ToolExecution, following: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        definition = tools.get(execution.name, execution.agent)
        limit = None if definition is None else definition.timeout_ms
        if limit is msgspec.UNSET:
            limit = config.default_timeout_ms
        if limit is None:
            return await following()
        deadline = Deadline(limit)
        outer = execution.signal
        execution.signal = bound = CancelToken.any_of(outer)
        timer = asyncio.get_running_loop().call_later(limit / 1000, bound.cancel, deadline)
        try:
            result = await following()
        finally:
            timer.cancel()
            execution.signal = outer
            bound.detach()
        return failure_of(ToolTimeoutError(limit)) if bound.reason is deadline else result

    ctx.on(TOOLS_EXECUTE, bounded)
