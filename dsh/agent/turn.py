"""One turn: from `turn/start` to `turn/end`, step after step, until nothing is owed and nothing waits.

The turn opens synchronously inside the `send` that wakes the agent; the rest runs in the driver's task
(`spec/agent-loop.md` §4, §5).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from dsh.agent.contract import (
    AGENT_PRE_STEP,
    AGENT_TURN_STOPPING,
    EnterStep,
    InboxTarget,
    PreStep,
    PreStepDecision,
    TurnStopping,
)
from dsh.agent.failure import failure_of
from dsh.agent.phase import Running
from dsh.agent.prompt import PromptAssembly, PromptContext
from dsh.agent.step import run_step
from dsh.agent.step_scope import StepScope
from dsh.kernel import ScopeTarget
from dsh.session.message import Message

if TYPE_CHECKING:
    from dsh.agent.driver import LoopAgent

End = Literal["completed", "max-tokens", "blocked"]


class Turn:
    """One turn of one agent. `open` is its synchronous beginning, `run` everything after."""

    def __init__(self, agent: "LoopAgent", phase: Running) -> None:
        self._agent = agent
        self._session = agent.session
        self._phase = phase
        self._signal = phase.token
        self._number = 0
        """0 until `turn/start` is in the log."""
        self._failure: Exception | None = None
        self._claimed: tuple[Message, ...] = ()
        """Taken from the inbox and not yet in the log as `user/message`."""
        self._claimed_from: InboxTarget = "next-turn"

    def open(self) -> None:
        """Append `turn/start` and claim what enters. A failure waits for `run` to be told."""
        try:
            self._signal.raise_if_cancelled()
            self._start()
            self._signal.raise_if_cancelled()
            self._claim("next-turn")
        except Exception as error:
            self._failure = error

    async def run(self) -> bool:
        """Run the opened turn to its `turn/end`. True: it ended normally, so the next prompt may follow.

        Raises:
            Exception: what ended the turn; it has been logged and told where the turn had begun.
        """
        if self._failure is not None and not self._number:
            raise self._failure
        reason: dict[str, Any]
        try:
            if self._failure is not None:
                raise self._failure
            end, is_normal = await self._steps()
            reason = {"kind": end}
        except Exception as error:
            if self._signal.cancelled:
                reason = {"kind": "aborted", "reason": self._signal.reason}
            else:
                reason = {"kind": "error", "error": failure_of(error).to_json()}
                self._agent.report(self._number, self._phase.step, error)
                self._put_back()
            self._end(reason)
            raise
        self._end(reason)
        return is_normal

    # -- boundaries ------------------------------------------------------------------------------

    def _start(self) -> None:
        number = self._phase.turn + 1
        try:
            self._session.append("turn/start", {"turn": number})
        except Exception as error:
            self._agent.report(self._phase.turn, 0, error)
            raise
        self._number = self._phase.turn = number

    def _end(self, reason: dict[str, Any]) -> None:
        try:
            self._session.append("turn/end", {"turn": self._number, "reason": reason})
        except Exception as error:
            self._agent.report(self._number, self._phase.step, error)
            raise

    def _claim(self, target: InboxTarget) -> None:
        self._claimed_from = target
        self._claimed = self._agent.inbox.claim(target, self._number)

    def _put_back(self) -> None:
        """What was claimed for a step that never took it in waits again, in its old place."""
        prompts = self._claimed[-1:] if self._claimed_from == "next-turn" else ()
        rest = self._claimed[: len(self._claimed) - len(prompts)]
        self._claimed = ()
        try:
            self._agent.inbox.splice("next-step", 0, 0, rest)
            self._agent.inbox.splice("next-turn", 0, 0, prompts)
        except Exception as error:
            self._agent.services.ctx.logger.error("claimed messages could not be put back: %s", error)

    # -- steps -----------------------------------------------------------------------------------

    async def _steps(self) -> tuple[End, bool]:
        """Why the turn ends, and whether it got to its normal end."""
        end: End | None = None
        owes_reply = False
        while True:
            self._signal.raise_if_cancelled()
            if self._phase.step:
                self._claim("next-step")
            assembly, messages = await self._pre_step(self._phase.step + 1)
            if messages is None:
                return "blocked", False
            if end is not None and not owes_reply and not messages:
                return end, True
            if self._phase.step == 0 and not messages:
                return "completed", False
            self._signal.raise_if_cancelled()
            outcome = await self._step(assembly, messages)
            owes_reply = outcome is None
            if outcome is not None and end != "max-tokens":
                end = outcome
            self._signal.raise_if_cancelled()
            if not owes_reply and not self._agent.inbox.next_step:
                await self._stopping()
            if not owes_reply and not self._agent.inbox.next_step:
                return end or "completed", True

    async def _pre_step(self, step: int) -> tuple[PromptAssembly, Sequence[Message] | None]:
        """The prompt, and what enters the step with the claimed messages; None when it was rejected."""
        agent, signal = self._agent, self._signal
        assembly = await agent.services.prompt.assemble(PromptContext(agent=agent, signal=signal))
        signal.raise_if_cancelled()
        claimed = self._claimed

        async def enter() -> PreStepDecision:
            snapshot = agent.snapshots.project(assembly.context)
            return EnterStep(claimed if snapshot is None else (*claimed, snapshot))

        payload = PreStep(agent, claimed, self._number, step, signal)
        decision = await agent.ctx.waterfall(AGENT_PRE_STEP, payload, enter, subject=ScopeTarget(agent))
        signal.raise_if_cancelled()
        return assembly, decision.messages if isinstance(decision, EnterStep) else None

    async def _step(
        self, assembly: PromptAssembly, messages: Sequence[Message]
    ) -> Literal["completed", "max-tokens"] | None:
        step = self._phase.step + 1
        at = {"turn": self._number, "step": step}
        self._session.append("step/start", at)
        self._phase.step = step
        try:
            for message in messages:
                event = self._session.append("user/message", message, surface="append")
                self._agent.snapshots.entered(event.seq, event.data)
                self._claimed = tuple(m for m in self._claimed if m["id"] != message["id"])
            self._claimed = ()
            scope = StepScope(self._agent, self._number, step, self._signal)
            outcome = await run_step(scope, assembly)
        except Exception:
            self._session.append("step/end", at)
            raise
        self._session.append("step/end", at)
        return outcome

    async def _stopping(self) -> None:
        payload = TurnStopping(self._agent, self._number, self._signal)
        await self._agent.ctx.serial(AGENT_TURN_STOPPING, payload, subject=ScopeTarget(self._agent))
        self._signal.raise_if_cancelled()
