"""One turn: from `turn/start` to `turn/end`, step after step, until nothing is owed and nothing waits.

The turn opens synchronously inside the `send` that wakes the agent; the rest runs in the driver's task
(`spec/agent-loop.md` §4, §5).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from dsh.agent.abandoned import Abandoned
from dsh.agent.contract import (
    AGENT_ERROR,
    AGENT_PRE_STEP,
    AGENT_TURN_STOPPING,
    Agent,
    AgentFailed,
    CancelCause,
    EnterStep,
    InboxTarget,
    PreStep,
    PreStepDecision,
    RejectStep,
    TurnStopping,
)
from dsh.agent.failure import failure_of
from dsh.agent.grace import Grace
from dsh.agent.inbox import Inbox
from dsh.agent.limits import TurnBudget, Used
from dsh.agent.phase import Running
from dsh.agent.prompt import PromptAssembly, PromptContext
from dsh.agent.request import RequestBuilder
from dsh.agent.runtime_context import RuntimeContext
from dsh.agent.services import LoopServices
from dsh.agent.step import StepOutcome, run_step
from dsh.agent.step_scope import StepScope
from dsh.agent.turn_routes import TurnRoutes
from dsh.kernel import ScopeTarget
from dsh.kernel.foreign import contained
from dsh.session.message import Message

End = Literal["completed", "max-tokens", "blocked"]
Ending = Literal["normal", "failed"]
"""How a turn ended that was not cancelled and has its `turn/end`: `failed` is error, blocked or empty."""


class TurnParts(NamedTuple):
    """What all turns of one agent work with."""

    agent: Agent
    services: LoopServices
    inbox: Inbox
    snapshots: RuntimeContext
    requests: RequestBuilder
    abandoned: Abandoned
    run: Used
    """What all turns together have used, against the limits of the run."""


class Turn:
    """One turn of one agent. `open` is its synchronous beginning, `run` everything after."""

    def __init__(self, parts: TurnParts, phase: Running) -> None:
        self._agent, self._services, self._inbox = parts.agent, parts.services, parts.inbox
        self._snapshots, self._requests = parts.snapshots, parts.requests
        self._session = parts.agent.session
        self._phase = phase
        self._signal = phase.token
        self._grace = Grace(phase.token, parts.abandoned.take)
        self._routes = TurnRoutes(parts.services.llm)
        self._budget = TurnBudget(parts.run, parts.services.rules().limits, self._stop)
        self._number = 0
        """0 until `turn/start` is in the log."""
        self._claimed: tuple[Message, ...] = ()
        self._failure: Exception | None = None
        self.returned: frozenset[str] = frozenset()
        """Ids of the messages that were put back, as they did not enter their step."""

    def open(self) -> None:
        """Append `turn/start` and claim what enters. A failure waits for `run` to be told."""
        try:
            self._signal.raise_if_cancelled()
            self._start()
            self._budget.begin()
            self._claim("next-turn")
        except Exception as error:
            self._failure = error

    async def run(self) -> Ending:
        """Run the opened turn to its `turn/end`.

        Raises:
            Exception: nothing follows: the turn never began, was cancelled, or has no end in the log.
        """
        if not self._number:
            assert self._failure is not None, "a turn that is opened has a number or a failure"
            raise self._failure
        try:
            if self._failure is not None:
                raise self._failure
            end, is_normal = await self._steps()
        except BaseException as raised:
            self._fail(contained(raised, "the turn"))
            return "failed"
        finally:
            self._budget.end()
            self._routes.release()
        self._end({"kind": end})
        return "normal" if is_normal else "failed"

    def _fail(self, error: Exception) -> None:
        """Log the end of a turn that was cancelled or has failed; a cancellation is raised again."""
        if self._signal.cancelled:
            self._put_back()
            self._end({"kind": "aborted", "reason": self._signal.reason})
            raise error
        self._report(self._number, error)
        self._put_back()
        self._end({"kind": "error", "error": failure_of(error).to_json()})

    # -- boundaries ------------------------------------------------------------------------------

    def _start(self) -> None:
        number = self._phase.turn + 1
        try:
            self._session.append("turn/start", {"turn": number})
        except Exception as error:
            self._report(self._phase.turn, error)
            raise
        self._number = self._phase.turn = number

    def _end(self, reason: dict[str, Any]) -> None:
        try:
            self._session.append("turn/end", {"turn": self._number, "reason": reason})
        except Exception as error:
            self._report(self._number, error)
            raise

    def _report(self, turn: int, error: Exception) -> None:
        """Tell listeners what ended or prevented a turn."""
        payload = AgentFailed(self._agent, turn, self._phase.step, error)
        self._agent.ctx.emit(AGENT_ERROR, payload, subject=ScopeTarget(self._agent))

    def _stop(self, cause: CancelCause) -> None:
        """A limit is reached. What waits, and what was claimed, waits on."""
        self._agent.cancel(cause, keep_inbox=True)

    def _claim(self, target: InboxTarget) -> None:
        """Take what enters the next step, if the limits allow one."""
        self._budget.check()
        self._signal.raise_if_cancelled()
        self._claimed = self._inbox.claim(target, self._number)

    def _put_back(self) -> None:
        if self._phase.drops_claimed:
            return
        try:
            self.returned = self._inbox.put_back()
        except Exception as error:
            self._services.ctx.logger.error("claimed messages could not be put back: %s", error)

    # -- steps -----------------------------------------------------------------------------------

    async def _steps(self) -> tuple[End, bool]:
        """Why the turn ends, and whether it got to its normal end."""
        end: End | None = None
        owes_reply = False
        while True:
            self._signal.raise_if_cancelled()
            if self._phase.step:
                self._claim("next-step")
            scope = self._scope(self._phase.step + 1)
            assembly, decision = await self._pre_step(scope)
            if not isinstance(decision, EnterStep):
                return "blocked", False
            if end is not None and not owes_reply and not decision.messages:
                return end, True
            if self._phase.step == 0 and not decision.messages:
                return "completed", False
            outcome = await self._step(scope, assembly, decision.messages)
            owes_reply = outcome is None
            if outcome is not None and end != "max-tokens":
                end = outcome
            self._signal.raise_if_cancelled()
            if not owes_reply and not self._inbox.next_step:
                await self._stopping()
            if not owes_reply and not self._inbox.next_step:
                return end or "completed", True

    def _scope(self, step: int) -> StepScope:
        return StepScope(
            self._agent, self._services, self._number, step, self._signal, self._grace, self._routes
        )

    async def _pre_step(self, scope: StepScope) -> tuple[PromptAssembly, PreStepDecision]:
        """The prompt of the step, and whether it is entered and with which messages."""
        assembling = self._services.prompt.assemble(PromptContext(agent=self._agent, signal=self._signal))
        assembly = await self._grace.wait(assembling, "the assembly of the prompt")
        self._signal.raise_if_cancelled()
        claimed = self._claimed

        async def enter() -> PreStepDecision:
            snapshot = self._snapshots.project(assembly.context)
            return EnterStep(claimed if snapshot is None else (*claimed, snapshot))

        payload = PreStep(self._agent, claimed, scope.turn, scope.step, self._signal)
        return assembly, await scope.ask(
            AGENT_PRE_STEP, payload, enter, _is_decision, "EnterStep with messages of the user, or RejectStep"
        )

    async def _step(
        self, scope: StepScope, assembly: PromptAssembly, messages: Sequence[Message]
    ) -> StepOutcome | None:
        at = {"turn": scope.turn, "step": scope.step}
        self._inbox.decided(messages)
        self._session.append("step/start", at)
        self._phase.step = scope.step
        self._budget.step_begins()
        try:
            for message in messages:
                event = self._session.append("user/message", message, surface="append")
                self._snapshots.entered(event.seq, event.data)
                self._inbox.entered(event.data)
            outcome = await run_step(scope, assembly, self._requests, self._budget.add_usage)
        except BaseException as raised:
            error = contained(raised, "the step")
            self._session.append("step/end", at)
            raise error  # noqa: B904 -- the same one, or made of it
        self._session.append("step/end", at)
        return outcome

    async def _stopping(self) -> None:
        payload = TurnStopping(self._agent, self._number, self._signal)
        told = self._agent.ctx.serial(AGENT_TURN_STOPPING, payload, subject=ScopeTarget(self._agent))
        await self._grace.wait(told, f"a listener of {AGENT_TURN_STOPPING.name}")
        self._signal.raise_if_cancelled()


def _is_decision(answer: object) -> bool:
    if not isinstance(answer, EnterStep):
        return isinstance(answer, RejectStep)
    messages: object = answer.messages
    return isinstance(messages, list | tuple) and all(map(_is_message, messages))


def _is_message(found: object) -> bool:
    return isinstance(found, Mapping) and isinstance(found.get("id"), str) and found.get("role") == "user"
