"""Runs the tool calls of one assistant message: bodies overlap where they may, everything else is in order.

`tool/call` rows and `tool/result` rows both stand in the model's order. A call starts once no earlier call
that it conflicts with is still uncommitted and fewer than the cap are running; asking the policies never
overlaps. A result is committed when all earlier ones are (`spec/tools.md` §5, `design.md` §10.7).
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dsh.agent.claims import Claims
from dsh.agent.grace import NoOutcome
from dsh.agent.step_scope import StepScope
from dsh.agent.tool_row import log_call, log_result
from dsh.session.error import InvalidEvent, JsonError
from dsh.session.message import Message
from dsh.session.value import freeze
from dsh.tools.arguments import parse_arguments
from dsh.tools.definition import Resources
from dsh.tools.execution import ToolCall, ToolFailure, ToolResult
from dsh.tools.outcome import aborted, outcome_unknown
from dsh.tools.pipeline import Invocation

SCHEDULER_FAILED = ToolFailure.of(
    "the harness failed while it was handling this call, so its outcome is unknown; check what it did "
    "before repeating it",
    name="ToolSchedulerError",
    code="TOOL_SCHEDULER_FAILED",
)
SCHEDULER_FAILED_BEFORE = ToolFailure.of(
    "the harness failed while it was preparing this call; it has not run",
    name="ToolSchedulerError",
    code="TOOL_SCHEDULER_FAILED",
)
NOT_STARTED = ToolFailure.of(
    "the harness failed before this call was started; it has not run",
    name="ToolNotStartedError",
    code="TOOL_NOT_STARTED",
)


async def run_tool_calls(scope: StepScope, blocks: Sequence[Mapping[str, Any]]) -> bool:
    """Run the calls of a message. True when a successful result concludes the turn.

    After a cancellation every call has a result in the log when this returns.

    Raises:
        Exception: the first failure of the machinery itself; the log is balanced as far as it can be.
    """
    return await _Batch(scope, [_asked(block, scope) for block in blocks]).run()


class _Asked(NamedTuple):
    """A call as the model made it."""

    call: ToolCall
    raw: str
    """Its arguments, untouched."""


class _Started:
    """A call whose `tool/call` is in the log and whose `tool/result` is not yet."""

    __slots__ = ("call", "call_seq", "invocation", "is_logged", "made_up", "resources", "task")

    def __init__(
        self, call: ToolCall, call_seq: int, invocation: Invocation, resources: Resources | None
    ) -> None:
        self.call, self.call_seq, self.invocation, self.resources = call, call_seq, invocation, resources
        self.task: asyncio.Task[None] | None = None
        """The body at work; it ends, whatever the tool does."""
        self.made_up: ToolResult | None = None
        """The result of a call whose pipeline will not give one."""
        self.is_logged = False

    @property
    def is_settled(self) -> bool:
        return self.made_up is not None or (self.task is not None and self.task.done())


class _Batch:
    """The calls of one message on their way: not started, uncommitted in order, committed."""

    def __init__(self, scope: StepScope, calls: list[_Asked]) -> None:
        self._scope = scope
        self._tools = scope.services.tools
        self._cap = scope.services.max_parallel_tool_calls()
        self._waiting = deque(calls)
        self._uncommitted: deque[_Started] = deque()
        self._claims = Claims()
        self._running: set[asyncio.Task[None]] = set()
        """The bodies at work; one that has ended may stay for a tick."""
        self._is_concluded = False

    async def run(self) -> bool:
        signal = self._scope.signal
        try:
            while self._waiting and not signal.cancelled:
                resources = self._tools.resources(self._waiting[0].call)
                if len(self._running) < self._cap and self._claims.admits(resources):
                    await self._start_next(resources)
                else:
                    await self._wait_for_one()
                await self._commit_ready()
            while self._uncommitted:
                await self._wait_for_one()
                await self._commit_ready()
            self._answer_unstarted()
        except Exception:
            await self._quiesce()
            raise
        except asyncio.CancelledError:
            for task in self._running:
                task.cancel()
            raise
        return self._is_concluded

    # -- start -----------------------------------------------------------------------------------

    async def _start_next(self, resources: Resources | None) -> None:
        call, raw = self._waiting[0]
        invocation = self._tools.begin(call)
        started = _Started(call, log_call(self._scope, call, raw), invocation, resources)
        self._waiting.popleft()
        self._uncommitted.append(started)
        self._claims.add(resources)
        try:
            await self._scope.grace.wait(invocation.prepare(), f"a policy of tool {call.name}")
        except NoOutcome as error:
            started.made_up = self._unreviewed(started, error)
        else:
            started.task = task = asyncio.create_task(self._dispatch(started), name=f"tool {call.name}")
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _dispatch(self, started: _Started) -> None:
        try:
            body, who = started.invocation.dispatch(), f"tool {started.call.name}"
            await self._scope.grace.wait(body, who, started.invocation.execution.give_up)
        except NoOutcome as error:
            started.made_up = outcome_unknown(error.message)

    async def _wait_for_one(self) -> None:
        """Until some body has ended."""
        if self._running:
            await asyncio.wait(self._running, return_when=asyncio.FIRST_COMPLETED)

    # -- commit ----------------------------------------------------------------------------------

    async def _commit_ready(self) -> None:
        while self._uncommitted and self._uncommitted[0].is_settled:
            await self._commit(self._uncommitted[0])
            self._claims.remove(self._uncommitted.popleft().resources)

    async def _commit(self, started: _Started) -> None:
        result = await self._result_of(started)
        log_result(self._scope, started.call.call_id, result, started.call_seq)
        started.is_logged = True
        for message in result.additional_contexts:
            self._hand_on(started.call, message)
        self._is_concluded = self._is_concluded or result.concludes_turn

    def _hand_on(self, call: ToolCall, message: Message) -> None:
        """Give the model a message at its next step; one that cannot wait there is the tool's own mistake."""
        try:
            self._scope.agent.inbox.append("next-step", message)
        except InvalidEvent as error:
            self._scope.services.ctx.logger.warning("a message of tool %s is dropped: %s", call.name, error)

    async def _result_of(self, started: _Started) -> ToolResult:
        if started.task is not None:
            started.task.result()
        if started.made_up is not None:
            return started.made_up
        reviewing = started.invocation.finalize()
        try:
            return await self._scope.grace.wait(reviewing, f"a review of tool {started.call.name}")
        except NoOutcome as error:
            return self._unreviewed(started, error)

    def _unreviewed(self, started: _Started, error: NoOutcome) -> ToolResult:
        """The result where a policy or a review of the call never answered."""
        if self._scope.signal.cancelled:
            return aborted(started=started.invocation.body_started)
        return ToolFailure.of(error.message)

    def _answer_unstarted(self) -> None:
        while self._waiting:
            call, raw = self._waiting[0]
            call_seq = log_call(self._scope, call, raw)
            self._waiting.popleft()
            log_result(self._scope, call.call_id, aborted(started=False), call_seq)

    # -- our own failures ------------------------------------------------------------------------

    async def _quiesce(self) -> None:
        """After a failure of our own: wait for the bodies, then answer every call that has no answer.

        What the log still refuses is left to crash repair; the first failure is the one that is told.
        """
        while self._running:
            await asyncio.wait(self._running)
        try:
            for started in self._uncommitted:
                if not started.is_logged:
                    await self._answer_somehow(started)
            for asked in self._waiting:
                log_result(self._scope, asked.call.call_id, NOT_STARTED, None)
        except Exception as error:
            self._scope.services.ctx.logger.error("calls are left without results: %s", error)

    async def _answer_somehow(self, started: _Started) -> None:
        if started.is_settled:
            try:
                await self._commit(started)
            except Exception:
                self._scope.services.ctx.logger.debug("commit of %s failed", started.call.name, exc_info=True)
        if not started.is_logged:
            failure = SCHEDULER_FAILED if started.invocation.body_started else SCHEDULER_FAILED_BEFORE
            log_result(self._scope, started.call.call_id, failure, started.call_seq)


def _asked(block: Mapping[str, Any], scope: StepScope) -> _Asked:
    parsed = parse_arguments(block["arguments"])
    try:
        arguments = freeze(parsed.value, "arguments", stored=True)
    except JsonError:  # the call will say so
        arguments = parsed.value
    call = ToolCall(
        call_id=block["id"],
        name=block["name"],
        arguments=arguments,
        arguments_problem=parsed.problem,
        agent=scope.agent,
        signal=scope.signal,
        give_up=scope.grace.give_up,
    )
    return _Asked(call, block["arguments"])
