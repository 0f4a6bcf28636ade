"""Makes histories shorter: before a step that would be too large, after a request that was, and when asked.

What happens by itself never ends a turn: the worst it comes to is a warning, and the turn goes on with the
whole history (`spec/tools.md` §9).
"""

from collections.abc import Callable
from typing import cast
from weakref import WeakKeyDictionary

from dsh.agent.contract import Agent, RequestFailed
from dsh.agent.failure import AgentBusyError
from dsh.agent.registry import AGENTS
from dsh.capabilities.agent import AgentRef
from dsh.capabilities.compaction import TOOL_RESULT_PRUNER, Compacted, CompactionError
from dsh.capabilities.token_meter import TOKEN_METER, Measurement
from dsh.kernel import CancelToken, Context
from dsh.llm.failure import LlmError
from dsh.llm.registry import LLM
from dsh.llm.request import LlmCallConfig
from dsh.plugins.compaction_basic.explanation import explained
from dsh.plugins.compaction_basic.instruction import checkpoint
from dsh.plugins.compaction_basic.span import Node, Span, choose, nodes_of, shorter, waiting_from
from dsh.plugins.compaction_basic.summary import Job, Summary, summarized
from dsh.plugins.compaction_basic.transaction import Transaction
from dsh.plugins.compaction_basic.trigger import OVERFLOW, Pressed, Trigger, target_of
from dsh.session.estimate import log_price
from dsh.session.log import Session
from dsh.session.store import SESSIONS

SHARES = (1.0, 1 / 4, 1 / 16)
"""What is cut without a reply to it may have this part of the pruner's budget, the first that is enough."""
HALVINGS = 5
"""How often the part to be summarised is halved where the request for the summary is too large itself."""


class Compactor:
    """The machinery of the row. State: how many summaries each session's overflows have taken."""

    def __init__(self, ctx: Context, trigger: Trigger) -> None:
        self._ctx, self._trigger = ctx, trigger
        self._overflows: WeakKeyDictionary[Session, tuple[object, int]] = WeakKeyDictionary()

    # -- one compaction --------------------------------------------------------------------------

    async def compact(self, job: Job) -> Compacted | None:
        """Put a summary in place of the beginning of a history; None where there is nothing to gain.

        Raises:
            CompactionError: with its code; the history is as it was.
        """
        session = job.agent.session
        span = choose(self._nodes(session), job.retained, turn_began=job.turn_began)
        if span is None or span.log_tokens <= _LEAST:
            return None

        async def summarize() -> tuple[Span, Summary]:
            return await self._summarize(span, job)

        writing = Transaction(session, self._ctx.logger, command_id=job.command_id)
        written = await writing.run(summarize, whole_surface=job.whole_surface)
        self._trigger.summarised(session)
        after = next((n.tokens for n in self._measure(session).nodes if n.seq == written.seq), 0)
        return Compacted(
            written.compaction_id, written.seq, len(written.span.nodes), written.span.tokens, after
        )

    async def _summarize(self, span: Span, job: Job) -> tuple[Span, Summary]:
        for _ in range(HALVINGS):
            try:
                return span, await self._ask(span, job)
            except LlmError as error:
                smaller = shorter(span) if error.failure.code == OVERFLOW else None
                if smaller is None or smaller.log_tokens <= _LEAST:
                    raise
                span = smaller
        return span, await self._ask(span, job)

    async def _ask(self, span: Span, job: Job) -> Summary:
        return await summarized(span, job, self._ctx.use(LLM))

    def _measure(self, session: Session) -> Measurement:
        return self._ctx.use(TOKEN_METER).measure(session)

    def _nodes(self, session: Session) -> tuple[Node, ...]:
        return nodes_of(session, self._measure(session).nodes)

    # -- before a step ---------------------------------------------------------------------------

    async def relieve(self, agent: Agent, signal: CancelToken, pressed: Pressed) -> None:
        """Bring a history below its threshold, if that can be done.

        Raises:
            CompactionError: a summary failed.
        """
        session, (target, _, limits) = agent.session, pressed
        self._prune(session, spare_from=_replied(session))
        # What waits for a reply stays whole where a summary of the rest is enough.
        self._cut_waiting(session, lambda: self._waiting(session) < limits.window)
        failure: CompactionError | None = None
        try:
            await self._summarise_until_small(agent, signal, pressed)
        except CompactionError as error:
            failure = error
        if signal.cancelled:
            return
        self._cut_waiting(session, lambda: self._trigger.total(session) < limits.window)
        total = self._trigger.total(session)
        if total >= limits.threshold:
            self._trigger.rest(session, target, limits)
        if failure is not None:
            raise failure
        if total >= limits.threshold:
            text = (
                f"about {total} tokens are more than the threshold of {limits.threshold} for model "
                f"{target.provider}/{target.model}, and nothing more can be compacted"
            )
            self._trigger.warn_once(session, target, text, kind="nothing")

    async def _summarise_until_small(self, agent: Agent, signal: CancelToken, pressed: Pressed) -> None:
        """Each further summary may take half as much of what was to stay."""
        target, policy, limits = pressed
        for attempt in range(1 + policy.compaction_retries):
            if self._trigger.total(agent.session) < limits.threshold:
                return
            retained = limits.retained // 2**attempt
            await self.compact(Job(agent, signal, target, policy, retained=retained))

    def _cut_waiting(self, session: Session, is_enough: Callable[[], bool]) -> None:
        for share in SHARES:
            if is_enough():
                return
            self._prune(session, share=share)

    def _waiting(self, session: Session) -> int:
        """What a request would take if everything were gone that the model has seen."""
        nodes = self._nodes(session)
        seen = nodes[: waiting_from(nodes, _turn_began(session))]
        return self._trigger.total(session) - sum(node.tokens for node in seen)

    # -- after a request -------------------------------------------------------------------------

    async def recover(self, failed: RequestFailed) -> None:
        """Make a history shorter whose request was too large, or tell what fills it.

        Summaries are limited, cuts need no limit: what was cut can be cut only so often again.
        """
        session, target = failed.agent.session, target_of(failed.agent.session)
        if target is None:
            return
        is_shorter = await self._shorten(failed, target)
        if not is_shorter and not failed.signal.cancelled:
            size = self._measure(session)
            self._trigger.warn(session, explained(size, nodes_of(session, size.nodes), session))

    async def _shorten(self, failed: RequestFailed, target: LlmCallConfig) -> bool:
        """The gentlest first, and of what waits for a reply as little as may do."""
        session, began = failed.agent.session, _turn_began(failed.agent.session)
        policy = self._trigger.config.for_model(target.provider, target.model)
        self._trigger.refused(session, target)
        limits = self._trigger.limits(session, target, policy)
        is_shorter = self._prune(session, spare_from=_replied(session)) > 0
        if is_shorter and limits is not None and self._trigger.total(session) < limits.threshold:
            return True
        if self._take(failed, policy.max_overflow_retries):
            job = Job(failed.agent, failed.signal, target, policy, turn_began=began)
            try:
                is_shorter = await self.compact(job) is not None or is_shorter
            except CompactionError as error:
                if failed.signal.cancelled:
                    return is_shorter
                self._trigger.warn(session, f"the history could not be made shorter: {error}")
        return is_shorter or any(self._prune(session, share=share, prompts_before=began) for share in SHARES)

    def _take(self, failed: RequestFailed, limit: int) -> bool:
        """Count a summary; False when the turn has had all it may have since the model's last message."""
        session = failed.agent.session
        since = failed.turn, _replied(session)
        known, count = self._overflows.get(session, (since, 0))
        count = count if known == since else 0
        if count >= limit:
            return False
        self._overflows[session] = since, count + 1
        return True

    def _prune(
        self,
        session: Session,
        *,
        spare_from: int | None = None,
        share: float = 1.0,
        prompts_before: int | None = None,
    ) -> int:
        pruner = self._ctx.get(TOOL_RESULT_PRUNER)
        if pruner is None:
            return 0
        return pruner.prune(session, spare_from=spare_from, share=share, prompts_before=prompts_before)

    # -- when asked ------------------------------------------------------------------------------

    async def compact_now(
        self, agent: AgentRef, *, command_id: str | None = None, signal: CancelToken | None = None
    ) -> Compacted | None:
        """As `dsh.capabilities.compaction.Compaction.compact_now`."""
        live = self._ctx.use(AGENTS).get(agent.id)
        if live is None or live is not cast(Agent, agent):
            raise CompactionError(f"agent {agent.id} is not live", code="cancelled")

        async def job(token: CancelToken) -> Compacted | None:
            fused = CancelToken.any_of(token, signal)
            try:
                return await self._maintain(live, fused, command_id)
            finally:
                fused.detach()

        try:
            return await live.run_maintenance(job)
        except AgentBusyError as error:
            raise CompactionError(
                f"agent {agent.id} is at work", code="busy", hint="wait until it is idle and ask again"
            ) from error

    async def _maintain(self, agent: Agent, signal: CancelToken, command_id: str | None) -> Compacted | None:
        session = agent.session
        target = target_of(session) or LlmCallConfig(agent.options.provider or "", agent.options.model or "")
        if not target.provider or not target.model:
            raise CompactionError(f"no model is known for session {session.id}", code="summary")
        policy = self._trigger.config.for_model(target.provider, target.model)
        if signal.cancelled:
            raise CompactionError("the compaction was cancelled", code="cancelled")
        job = Job(agent, signal, target, policy, whole_surface=False, command_id=command_id)
        done = await self.compact(job)
        if done is not None:
            try:
                await self._ctx.use(SESSIONS).flush(session)
            except Exception as error:
                raise CompactionError(
                    f"the summary is in the log of session {session.id}, which could not be stored: {error}",
                    code="persistence",
                ) from error
        return done


def _replied(session: Session) -> int | None:
    """The seq of the model's last message."""
    replied = session.last("assistant/message")
    return None if replied is None else replied.seq


def _turn_began(session: Session) -> int:
    begun = session.last("turn/start")
    return 0 if begun is None else begun.seq


_LEAST = log_price(checkpoint((), {"compactionId": ""}))
"""What a checkpoint takes beside its summary: a span that takes no more is not worth a request."""
