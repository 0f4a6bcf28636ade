"""Hooks around the calls of tools: they deny, ask, allow, want other arguments, and look at results."""

from collections.abc import Awaitable, Callable

import msgspec

from dsh.agent.hooks import payload
from dsh.agent.hooks.outcome import Outcome
from dsh.agent.hooks.session import Memory, SessionHooks
from dsh.kernel.foreign import bounded
from dsh.session.message import text_block
from dsh.session.value import encode, json_equal
from dsh.tools.event import Allow, Ask, Block, Deny, PostDecision, PreDecision, Settled
from dsh.tools.execution import ToolExecution

MAX_PROPOSED = 64
"""How many calls that hooks have asked for are remembered, the latest ones."""
NO_REASON = "a hook refused this call without a reason"
NO_REASON_AFTER = "a hook rejected the result of this call without a reason"


class HookAsk(Ask, frozen=True):
    """A question that a hook has put. No other hook's `allow` answers it."""


class ToolUse:
    """The listeners around one call."""

    def __init__(self, hooks: SessionHooks) -> None:
        self._hooks = hooks

    async def before(
        self, execution: ToolExecution, following: Callable[[], Awaitable[PreDecision]]
    ) -> PreDecision:
        """Deny beats ask beats allow, over all hooks and the listeners behind them."""
        session = execution.session
        if session is None:
            return await following()
        hooks, memory = self._hooks, self._hooks.memory(session)
        if memory.stop is not None and memory.stop[0] == session.open_turn:
            return Deny(memory.stop[1])
        outcome = await hooks.run(
            "PreToolUse",
            execution.name,
            payload.tool_use(hooks.dialect, execution),
            session=session,
            signal=execution.signal,
            turn=session.open_turn,
            model=_model(execution),
        )
        if outcome.stop_reason is not None:
            return Deny(hooks.request_stop(session, "PreToolUse", outcome.stop_reason))
        if outcome.decision == "deny":
            return Deny("\n\n".join((outcome.reason or NO_REASON, *outcome.contexts)))
        if (wanted := self._wanted(execution, outcome, memory)) is not None:
            return Deny("\n\n".join((wanted, *outcome.contexts)))
        decision = _merged(outcome, await following())
        if outcome.contexts and not isinstance(decision, Deny):
            execution.defer_context(hooks.message(outcome.contexts))
        return decision

    async def after(self, settled: Settled, following: Callable[[], Awaitable[PostDecision]]) -> PostDecision:
        """Look at what a tool did; a call that never began has done nothing."""
        execution = settled.execution
        session = execution.session
        if session is None or execution.body is None or execution.signal.cancelled:
            return await following()
        hooks = self._hooks
        outcome = await hooks.run(
            "PostToolUse",
            execution.name,
            {**payload.tool_use(hooks.dialect, execution), **payload.tool_response(settled.result)},
            session=session,
            signal=execution.signal,
            turn=session.open_turn,
            model=_model(execution),
        )
        if outcome.stop_reason is not None:
            hooks.request_stop(session, "PostToolUse", outcome.stop_reason)
        contexts = (hooks.message(outcome.contexts),) if outcome.contexts else ()
        if outcome.decision == "deny":
            feedback = text_block(outcome.reason or NO_REASON_AFTER)
            return Block(feedback=(feedback,), additional_contexts=contexts)
        decision = await following()
        if not contexts:
            return decision
        return msgspec.structs.replace(
            decision, additional_contexts=(*contexts, *decision.additional_contexts)
        )

    def _wanted(self, execution: ToolExecution, outcome: Outcome, memory: Memory) -> str | None:
        """Why the call cannot run as it is: a hook wants other arguments, which only the model can give.

        What was called is logged and never changes, so the model is asked for the call that the hook wants.
        That one then runs, whatever hooks would still make of it.
        """
        wanted = outcome.updated_input
        if wanted is None:
            return None
        given = payload.tool_input(self._hooks.dialect, execution)
        call = [execution.name, given]
        if json_equal(wanted, given) or any(json_equal(call, one) for one in memory.proposed):
            return None
        memory.proposed.append([execution.name, wanted])
        del memory.proposed[:-MAX_PROPOSED]
        text = encode(wanted).decode()
        return bounded(
            f"a hook wants other arguments for this call; make it again with exactly these: {text}"
        )


def _merged(outcome: Outcome, behind: PreDecision) -> PreDecision:
    """What hooks and the listeners behind them come to. A hook's `allow` answers a question of theirs."""
    if not isinstance(behind, Allow | Ask):
        return behind
    if outcome.decision == "ask":
        reasons = [outcome.reason, (behind.reason or "") if isinstance(behind, Ask) else ""]
        return HookAsk("\n\n".join(filter(None, reasons)) or None)
    if outcome.decision == "allow" and isinstance(behind, Ask) and not isinstance(behind, HookAsk):
        return Allow()
    return behind


def _model(execution: ToolExecution) -> str | None:
    options = getattr(execution.agent, "options", None)
    return getattr(options, "model", None)
