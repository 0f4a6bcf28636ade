"""Row `compaction-basic`: puts a summary in place of the beginning of a history that grows too large.

Before a step whose request would pass a part of the model's window, after a request that the provider found
too large, and when somebody asks (`spec/tools.md` §9). The machinery is loaded when it is first needed.
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from dsh.agent.contract import (
    AGENT_PRE_STEP,
    AGENT_REQUEST_ERROR,
    PreStep,
    PreStepDecision,
    RequestFailed,
    RetryRequest,
)
from dsh.agent.registry import AGENTS
from dsh.capabilities.agent import AgentRef
from dsh.capabilities.compaction import COMPACTION, Compacted
from dsh.capabilities.token_meter import TOKEN_METER
from dsh.kernel import CancelToken, Context
from dsh.llm.registry import LLM
from dsh.plugins.compaction_basic.config import Config
from dsh.plugins.compaction_basic.trigger import OVERFLOW, Trigger
from dsh.session.store import SESSIONS

if TYPE_CHECKING:
    from dsh.plugins.compaction_basic.compactor import Compactor

__all__ = ["Config", "apply", "inject", "provide"]

inject = [LLM, TOKEN_METER, AGENTS, SESSIONS]
provide = [COMPACTION]


class Service:
    """Implements `dsh.capabilities.compaction.Compaction`, and listens for the loop's need of it."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._ctx = ctx
        self._trigger = Trigger(config, ctx.use(LLM), ctx.use(TOKEN_METER), lambda: ctx.logger)
        self._made: Compactor | None = None

    @property
    def _compactor(self) -> "Compactor":
        if self._made is None:
            from dsh.plugins.compaction_basic.compactor import Compactor

            self._made = Compactor(self._ctx, self._trigger)
        return self._made

    def compact_now(
        self, agent: AgentRef, *, command_id: str | None = None, signal: CancelToken | None = None
    ) -> Awaitable[Compacted | None]:
        return self._compactor.compact_now(agent, command_id=command_id, signal=signal)

    async def before_step(
        self, step: PreStep, following: Callable[[], Awaitable[PreStepDecision]]
    ) -> PreStepDecision:
        """Make the history shorter if it is time; the step goes on in any case."""
        session = step.agent.session
        try:
            pressed = None if step.signal.cancelled else self._trigger.pressed(session)
            if pressed is not None:
                await self._compactor.relieve(step.agent, step.signal, pressed)
        except Exception as error:
            if not step.signal.cancelled:
                self._trigger.warn(session, f"the history could not be made shorter: {error}")
        return await following()

    async def after_request(
        self, failed: RequestFailed, following: Callable[[], Awaitable[RetryRequest | None]]
    ) -> RetryRequest | None:
        """Make a history shorter whose request was too large, and try again if that came to anything.

        What became of the surface decides: a cut counts, whatever failed after it.
        """
        if failed.failure.code != OVERFLOW or failed.signal.cancelled:
            return await following()
        session = failed.agent.session
        before = session.replace_generation
        try:
            await self._compactor.recover(failed)
        except Exception as error:
            self._trigger.warn(session, f"the history could not be made shorter: {error}")
        return {"kind": "retry"} if session.replace_generation != before else await following()


def apply(ctx: Context, config: Config) -> None:
    service = Service(ctx, config)
    ctx.provide(COMPACTION, service)
    if config.auto:
        ctx.on(AGENT_PRE_STEP, service.before_step)
        ctx.on(AGENT_REQUEST_ERROR, service.after_request)
