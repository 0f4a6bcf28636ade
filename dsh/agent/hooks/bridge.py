"""Between an agent and its hooks: listens at the points where hooks run, and does what they decide.

A hook that wants the agent to stop (`continue: false`) ends the turn at its next step: what has happened is
logged as it was, the calls that remain are refused, and the turn's end names the hook.
"""

from collections.abc import Awaitable, Callable

from dsh.agent.contract import (
    AGENT_DISPOSED,
    AGENT_PRE_STEP,
    AGENT_SESSION_START,
    AGENT_TURN_STOPPING,
    Agent,
    AgentSubject,
    PreStep,
    PreStepDecision,
    RejectStep,
    SessionStarted,
    TurnStopping,
)
from dsh.agent.hooks import payload
from dsh.agent.hooks.dialect import AGENT_TYPE, Point
from dsh.agent.hooks.outcome import NOTHING, Outcome
from dsh.agent.hooks.session import SessionHooks
from dsh.agent.hooks.start import Beginning
from dsh.agent.hooks.tool_use import ToolUse
from dsh.agent.step_context import with_context
from dsh.session.message import text_of
from dsh.tools.event import TOOLS_POST_EXECUTE, TOOLS_PRE_EXECUTE


class Bridge:
    """The listeners of one row."""

    def __init__(self, hooks: SessionHooks) -> None:
        self._hooks = hooks
        self._runner = hooks.runner
        self._owner = hooks.dialect.owner
        self._config = hooks.config

    def install(self) -> None:
        """Listen, at those points only for which there are hooks."""
        ctx, has = self._hooks.ctx, self._runner.has
        tools = ToolUse(self._hooks)
        if has("SessionStart") or has("SubagentStart"):
            ctx.on(AGENT_SESSION_START, self._session_started)
            ctx.on(AGENT_DISPOSED, self._agent_gone)
        if has("Stop") or has("SubagentStop"):
            ctx.on(AGENT_TURN_STOPPING, self._stopping)
        if has("PreToolUse") or has("PostToolUse"):
            ctx.on(TOOLS_PRE_EXECUTE, tools.before, prepend=True)
        if has("PostToolUse"):
            ctx.on(TOOLS_POST_EXECUTE, tools.after)
        ctx.on(AGENT_PRE_STEP, self._before_step)

    # -- the start of a session ------------------------------------------------------------------

    def _session_started(self, started: SessionStarted) -> None:
        agent = started.agent
        is_child = agent.session.header.origin == "subagent"
        point: Point = "SubagentStart" if is_child else "SessionStart"
        if not self._runner.has(point):
            return
        query = AGENT_TYPE if is_child else started.source
        fields = payload.subagent(agent.id) if is_child else {"source": started.source}
        beginning = Beginning(point)
        self._hooks.memory(agent.session).beginning = beginning

        async def begin() -> None:
            outcome = NOTHING
            try:
                outcome = await self._hooks.run(
                    point,
                    query,
                    fields,
                    session=agent.session,
                    signal=beginning.token,
                    model=agent.options.model,
                )
            finally:
                beginning.finish(outcome)

        self._hooks.ctx.spawn(begin(), f"{point} hooks of {agent.id}")

    def _agent_gone(self, gone: AgentSubject) -> None:
        self._hooks.forget(gone.agent.session)

    async def _begun(self, step: PreStep, beginning: Beginning) -> Outcome | None:
        """What the hooks of the start came to, if they are through by now."""
        seconds = self._config.session_start_wait_ms / 1000
        outcome = await beginning.wait(step.signal, seconds)
        if outcome is None:
            self._runner.warn(
                f"{self._owner}: hooks of the session's start still run after {seconds:g} s; "
                "the first step does without them"
            )
        elif outcome.stop_reason is not None or outcome.has_failed_closed:
            why = outcome.reason if outcome.stop_reason is None else outcome.stop_reason
            self._hooks.request_stop(step.agent.session, beginning.point, why)
        elif outcome.decision == "deny" and outcome.reason:
            self._runner.notice(f"{self._owner}: {outcome.reason}")
        return outcome

    # -- steps -----------------------------------------------------------------------------------

    async def _before_step(
        self, step: PreStep, following: Callable[[], Awaitable[PreStepDecision]]
    ) -> PreStepDecision:
        session = step.agent.session
        memory = self._hooks.memory(session)
        begun = None if memory.beginning is None else await self._begun(step, memory.beginning)
        if memory.stop is not None:
            turn, why = memory.stop
            memory.stop = None
            if turn == step.turn:  # what a start came to is kept: no later turn goes on either
                step.agent.cancel({"kind": "hook", "reason": why}, keep_inbox=True)
                return RejectStep()
        outcome = await self._submitted(step)
        if outcome.decision == "deny" or outcome.stop_reason is not None:
            reason = outcome.stop_reason or outcome.reason or "it gave no reason"
            self._runner.notice(f"dsh: a UserPromptSubmit hook refused the task: {reason}")
            return RejectStep()
        decision = await following()
        if isinstance(decision, RejectStep):
            return decision
        if begun is not None:
            memory.beginning = None
        added = [self._hooks.message(one.contexts) for one in (begun, outcome) if one and one.contexts]
        return with_context(step, decision, *added)

    async def _submitted(self, step: PreStep) -> Outcome:
        prompts = [m for m in step.messages if m["source"].get("kind") == "user"]
        if not prompts:
            return NOTHING
        return await self._hooks.run(
            "UserPromptSubmit",
            "",
            {"prompt": "\n\n".join(map(text_of, prompts))},
            session=step.agent.session,
            signal=step.signal,
            turn=step.turn,
            model=step.agent.options.model,
        )

    # -- the end of a turn -----------------------------------------------------------------------

    async def _stopping(self, stopping: TurnStopping) -> None:
        agent, turn = stopping.agent, stopping.turn
        memory = self._hooks.memory(agent.session)
        if memory.stop is not None and memory.stop[0] == turn:
            return  # a hook wants just this
        is_child = agent.session.header.origin == "subagent"
        times = memory.forced[1] if memory.forced[0] == turn else 0
        outcome = await self._hooks.run(
            "SubagentStop" if is_child else "Stop",
            AGENT_TYPE,
            {
                **(payload.subagent(agent.id) if is_child else {}),
                **payload.stop(self._hooks.dialect, is_forced=times > 0),
            },
            session=agent.session,
            signal=stopping.signal,
            turn=turn,
            model=agent.options.model,
        )
        if is_child or outcome.decision != "deny" or outcome.stop_reason is not None:
            return
        if times >= self._config.max_stop_continuations:
            self._runner.warn(
                f"{self._owner}: Stop hooks kept turn {turn} going {times} times in a row; it ends "
                "all the same (maxStopContinuations)"
            )
            return
        memory.forced = (turn, times + 1)
        self._keep_going(agent, outcome)

    def _keep_going(self, agent: Agent, outcome: Outcome) -> None:
        reason = outcome.reason or "A Stop hook wants the work to go on; it gave no reason."
        agent.steer(self._hooks.message([reason, *outcome.contexts]))
