"""Runs the tool calls of one assistant message: bodies overlap where they may, everything else is in order.

`tool/call` rows and `tool/result` rows both stand in the model's order. A call starts once no earlier call
that it conflicts with is still uncommitted and fewer than the cap are running; asking the policies never
overlaps. A result is committed when all earlier ones are (`spec/tools.md` §5, `design.md` §10.7).
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dsh.agent.step_scope import StepScope
from dsh.agent.tool_row import log_call, log_result
from dsh.tools.arguments import parse_arguments
from dsh.tools.definition import Resources
from dsh.tools.execution import ToolCall, ToolFailure, ToolResult
from dsh.tools.outcome import aborted
from dsh.tools.pipeline import Invocation

GRACE_S = 5.0
"""How long a started body may go on after its turn was cancelled (`design.md` §10.3)."""

OUTCOME_UNKNOWN = ToolFailure.of(
    "the call was started but did not end after the turn was cancelled, so its outcome is unknown; check "
    "what it did before repeating it",
    name="ToolOutcomeUnknownError",
    code="TOOL_OUTCOME_UNKNOWN",
)
SCHEDULER_FAILED = ToolFailure.of(
    "the harness failed while it was handling this call, so its outcome is unknown; check what it did "
    "before repeating it",
    name="ToolSchedulerError",
    code="TOOL_SCHEDULER_FAILED",
)
NOT_STARTED = ToolFailure.of(
    "the harness failed before this call was started; it has not run",
    name="ToolNotStartedError",
    code="TOOL_NOT_STARTED",
)


class _Started:
    """A call whose `tool/call` is in the log and whose `tool/result` is not yet."""

    __slots__ = ("call", "call_seq", "invocation", "is_logged", "resources", "result", "task")

    def __init__(self, call: ToolCall, call_seq: int, resources: Resources | None) -> None:
        self.call, self.call_seq, self.resources = call, call_seq, resources
        self.invocation: Invocation | None = None
        self.task: asyncio.Task[None] | None = None
        self.result: ToolResult | None = None
        """A result that was made up because the body's own will never come."""
        self.is_logged = False

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done() and self.result is None

    @property
    def is_settled(self) -> bool:
        return self.result is not None or (self.task is not None and self.task.done())


async def run_tool_calls(scope: StepScope, blocks: Sequence[Mapping[str, Any]]) -> bool:
    """Run the calls of a message. True when a successful result concludes the turn.

    After a cancellation every call has a result in the log when this returns.

    Raises:
        Exception: the first failure of the machinery itself; the log is balanced as far as it can be.
    """
    return await _Batch(scope, [_call_of(block, scope) for block in blocks]).run()


class _Asked(NamedTuple):
    """A call as the model made it."""

    call: ToolCall
    raw: str
    """Its arguments, untouched."""


class _Batch:
    """The calls of one message on their way: not started, uncommitted in order, committed."""

    def __init__(self, scope: StepScope, calls: list[_Asked]) -> None:
        self._scope = scope
        self._tools = scope.agent.services.tools
        self._cap = scope.agent.services.max_parallel_tool_calls()
        self._waiting = deque(calls)
        self._uncommitted: deque[_Started] = deque()
        self._concluded = False
        self._cancelled = asyncio.Event()

    async def run(self) -> bool:
        undo = self._scope.signal.on_cancel(lambda _: self._cancelled.set())
        try:
            await self._start_and_commit()
            await self._drain()
            self._log_unstarted()
        except Exception:
            await self._quiesce()
            raise
        finally:
            undo()
        return self._concluded

    async def _start_and_commit(self) -> None:
        signal = self._scope.signal
        while self._waiting and not signal.cancelled:
            resources = self._tools.resources(self._waiting[0].call)
            if self._may_start(resources):
                await self._start(self._waiting.popleft(), resources)
                await self._commit_ready()
            else:
                await self._wait_for_one()
                await self._commit_ready()
        while self._uncommitted and not signal.cancelled:
            await self._commit_ready()
            if self._uncommitted:
                await self._wait_for_one()

    def _may_start(self, wanted: Resources | None) -> bool:
        if sum(started.is_running for started in self._uncommitted) >= self._cap:
            return False
        if wanted is None:
            return not self._uncommitted
        return not any(
            started.resources is None or wanted.conflicts(started.resources) for started in self._uncommitted
        )

    async def _start(self, asked: _Asked, resources: Resources | None) -> None:
        call = asked.call
        started = _Started(call, log_call(self._scope, call, asked.raw), resources)
        self._uncommitted.append(started)
        started.invocation = self._tools.begin(call)
        await started.invocation.prepare()
        started.task = asyncio.create_task(started.invocation.dispatch(), name=f"tool {call.name}")

    async def _wait_for_one(self) -> None:
        """Until a body ends or the turn is cancelled."""
        tasks = [s.task for s in self._uncommitted if s.is_running and s.task is not None]
        gate = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait((*tasks, gate), return_when=asyncio.FIRST_COMPLETED)
        finally:
            gate.cancel()

    async def _commit_ready(self) -> None:
        while self._uncommitted and self._uncommitted[0].is_settled:
            await self._commit(self._uncommitted[0])
            self._uncommitted.popleft()

    async def _commit(self, started: _Started) -> None:
        result = started.result
        if result is None:
            assert started.task is not None and started.invocation is not None
            started.task.result()
            result = await started.invocation.finalize()
        log_result(self._scope, started.call.call_id, result, started.call_seq)
        started.is_logged = True
        for message in result.additional_contexts:
            self._scope.agent.inbox.append("next-step", message)
        self._concluded = self._concluded or result.concludes_turn

    async def _drain(self) -> None:
        """After a cancellation: give running bodies their grace, then commit what was started."""
        await self._wait_bounded()
        for started in self._uncommitted:
            if started.is_running and started.task is not None:
                started.result = OUTCOME_UNKNOWN
                self._scope.agent.abandon(started.task, started.call.name)
        await self._commit_ready()

    async def _wait_bounded(self) -> None:
        """Until no body runs; once the turn is cancelled, at most for the grace."""
        while tasks := [s.task for s in self._uncommitted if s.is_running and s.task is not None]:
            if self._scope.signal.cancelled:
                await asyncio.wait(tasks, timeout=GRACE_S)
                return
            await self._wait_for_one()

    def _log_unstarted(self) -> None:
        while self._waiting:
            call, raw = self._waiting[0]
            call_seq = log_call(self._scope, call, raw)
            self._waiting.popleft()
            log_result(self._scope, call.call_id, aborted(started=False), call_seq)

    async def _quiesce(self) -> None:
        """After a failure of our own: wait for the bodies, then answer every call that has no answer.

        What the log still refuses is left to crash repair; the first failure is the one that is told.
        """
        await self._wait_bounded()
        try:
            for started in self._uncommitted:
                if not started.is_logged:
                    await self._answer_somehow(started)
            for asked in self._waiting:
                log_result(self._scope, asked.call.call_id, NOT_STARTED, None)
        except Exception as error:
            self._scope.agent.services.ctx.logger.error("calls are left without results: %s", error)

    async def _answer_somehow(self, started: _Started) -> None:
        if started.is_running and started.task is not None:
            self._scope.agent.abandon(started.task, started.call.name)
        if started.is_settled:
            try:
                await self._commit(started)
            except Exception:
                self._scope.agent.services.ctx.logger.debug(
                    "commit of %s failed", started.call.name, exc_info=True
                )
        if not started.is_logged:
            log_result(self._scope, started.call.call_id, SCHEDULER_FAILED, started.call_seq)


def _call_of(block: Mapping[str, Any], scope: StepScope) -> _Asked:
    parsed = parse_arguments(block["arguments"])
    call = ToolCall(
        call_id=block["id"],
        name=block["name"],
        arguments=parsed.value,
        arguments_problem=parsed.problem,
        agent=scope.agent,
        signal=scope.signal,
    )
    return _Asked(call, block["arguments"])
