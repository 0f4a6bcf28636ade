"""Row `timeout-policy`: a deadline for every tool call that does not bound itself.

The deadline cancels the call's token and then waits for the body; whatever the body makes of it, the
result is the timeout. A body that does not end within a grace is left behind, its outcome unknown. A
deadline further in or out counts as ordinary cancellation here.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from dsh.capabilities.bounds import TimerMs
from dsh.kernel import CancelToken, Context
from dsh.kernel.task import KeptTask, retrieve
from dsh.tools.error import ToolTimeoutError
from dsh.tools.event import TOOLS_EXECUTE
from dsh.tools.execution import ToolExecution, ToolResult
from dsh.tools.foreign import exit_of
from dsh.tools.leftover import leave_with
from dsh.tools.outcome import failure_of, outcome_unknown
from dsh.tools.registry import TOOLS

inject = [TOOLS]
provide = ()

Following = Callable[[], Awaitable[ToolResult]]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    default_timeout_ms: TimerMs = 1_800_000
    """For tools that say nothing about a deadline; half an hour is beyond any build or test run."""
    grace_ms: TimerMs = 5_000
    """How long a body may go on after its deadline; then the call is answered without it."""


class Deadline(msgspec.Struct, frozen=True):
    """The reason of a token that ran out of time. Each call has its own, and knows it by identity."""

    timeout_ms: float


class Bounded:
    """The wrapper of `tools/execute`."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._ctx, self._config = ctx, config
        self._tools = ctx.use(TOOLS)

    async def __call__(self, execution: ToolExecution, following: Following) -> ToolResult:
        limit_ms = self._limit_ms(execution)
        if limit_ms is None:
            return await following()
        outer = execution.signal
        execution.signal = bound = CancelToken.any_of(outer)
        try:
            return await self._within(Deadline(limit_ms), bound, execution, following)
        finally:
            execution.signal = outer
            bound.detach()

    def _limit_ms(self, execution: ToolExecution) -> float | None:
        definition = self._tools.get(execution.name, execution.agent)
        limit = None if definition is None else definition.timeout_ms
        return self._config.default_timeout_ms if limit is msgspec.UNSET else limit

    async def _within(
        self, deadline: Deadline, bound: CancelToken, execution: ToolExecution, following: Following
    ) -> ToolResult:
        limit_ms, grace_ms = deadline.timeout_ms, self._config.grace_ms
        task = KeptTask(_awaited(following), name=f"tool {execution.name} within {limit_ms:g}ms")
        try:
            await asyncio.wait((task,), timeout=limit_ms / 1000)
            if not task.done():
                bound.cancel(deadline)
                await asyncio.wait((task,), timeout=grace_ms / 1000)
        except asyncio.CancelledError:
            task.add_done_callback(retrieve)
            task.cancel()
            raise
        if not task.done():
            who = f"tool {execution.name}"
            execution.give_up(task, who)
            if execution.agent is None:
                leave_with(self._ctx, task, who)
            return outcome_unknown(
                f"the call did not end within {grace_ms:g}ms after its deadline of {limit_ms:g}ms"
            )
        result: ToolResult = task.result()
        return failure_of(ToolTimeoutError(limit_ms)) if bound.reason is deadline else result


async def _awaited(following: Following) -> ToolResult:
    """A task of its own runs it, and no exit of foreign code may leave that."""
    try:
        return await following()
    except BaseException as error:
        raise exit_of(error, f"a listener of {TOOLS_EXECUTE.name}")  # noqa: B904 -- the same, or made of it


def apply(ctx: Context, config: Config) -> None:
    ctx.on(TOOLS_EXECUTE, Bounded(ctx, config))
