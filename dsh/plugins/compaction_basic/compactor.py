"""Makes histories shorter: before a step that would be too large, after a request that was, and when asked.

What happens by itself never ends a turn: the worst it comes to is a warning, and the turn goes on with the
whole history (`spec/tools.md` §9).
"""

from typing import cast
from weakref import WeakKeyDictionary

from dsh.agent.contract import Agent, RequestFailed
from dsh.agent.failure import AgentBusyError
from dsh.agent.registry import AGENTS
from dsh.capabilities.agent import AgentRef
from dsh.capabilities.compaction import TOOL_RESULT_PRUNER, Compacted, CompactionError
from dsh.capabilities.token_meter import TOKEN_METER, Measurement
from dsh.kernel import CancelToken, Context, ScopeTarget
from dsh.llm.failure import LlmError
from dsh.llm.registry import LLM
from dsh.llm.request import LlmCallConfig
from dsh.plugins.compaction_basic.config import Policy
from dsh.plugins.compaction_basic.instruction import checkpoint
from dsh.plugins.compaction_basic.span import Span, choose, nodes_of, shorter
from dsh.plugins.compaction_basic.summary import Call, Summarizer, Summary
from dsh.plugins.compaction_basic.transaction import Transaction
from dsh.plugins.compaction_basic.trigger import Pressed, Trigger, target_of
from dsh.session.estimate import log_price
from dsh.session.log import Session
from dsh.session.store import SESSIONS

HALVINGS = 3
"""How often the part to be summarised is halved where the request for the summary is too large itself."""
OVERFLOW = "CONTEXT_WINDOW_EXCEEDED"


class Job:
    """What one compaction is to do."""

    def __init__(
        self,
        agent: AgentRef,
        signal: CancelToken,
        *,
        target: LlmCallConfig,
        policy: Policy,
        retained: int = 0,
        only_seen: bool = False,
        whole_surface: bool = True,
        command_id: str | None = None,
    ) -> None:
        """
        Args:
            retained: how many tokens of the history's end stay; the last node always does.
            only_seen: leave what the model has not answered to.
            whole_surface: give up when anything of the surface changes meanwhile.
        """
        self.agent, self.session = agent, agent.session
        self.target, self.policy = target, policy
        self.retained, self.only_seen, self.whole_surface = retained, only_seen, whole_surface
        self.command_id = command_id
        self.call = Call(signal, ScopeTarget(agent))


class Compactor:
    """The machinery of the row. State: how many summaries each session's overflows have taken."""

    def __init__(self, ctx: Context, trigger: Trigger) -> None:
        self._ctx, self._trigger = ctx, trigger
        self._summarizer = Summarizer(ctx.use(LLM))
        self._overflows: WeakKeyDictionary[Session, tuple[object, int]] = WeakKeyDictionary()

    # -- one compaction --------------------------------------------------------------------------

    async def compact(self, job: Job) -> Compacted | None:
        """Put a summary in place of the beginning of a history; None where there is nothing to gain.

        Raises:
            CompactionError: with its code; the history is as it was.
        """
        session = job.session
        nodes = nodes_of(session, self._measure(session).nodes)
        span = choose(nodes, job.retained, only_seen=job.only_seen)
        if span is None or span.log_tokens <= _LEAST:
            return None

        async def summarize() -> tuple[Span, Summary]:
            return await self._summarize(span, job)

        writing = Transaction(session, self._ctx.logger, command_id=job.command_id)
        written = await writing.run(summarize, whole_surface=job.whole_surface)
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
        return await self._summarizer.summarize(job.session, span, job.target, job.policy, job.call)

    def _measure(self, session: Session) -> Measurement:
        return self._ctx.use(TOKEN_METER).measure(session)

    # -- before a step ---------------------------------------------------------------------------

    async def relieve(self, agent: Agent, signal: CancelToken, pressed: Pressed) -> None:
        """Bring a history below its threshold, if that can be done.

        Raises:
            CompactionError: a summary failed.
        """
        session, (target, _, limits) = agent.session, pressed
        self._prune(session, spare_unseen=True)
        failure: CompactionError | None = None
        try:
            await self._summarise_until_small(agent, signal, pressed)
        except CompactionError as error:
            failure = error
        if signal.cancelled:
            return
        if self._trigger.total(session) >= limits.window:
            self._prune(session, spare_unseen=False)
        total = self._trigger.total(session)
        if total >= limits.threshold:
            self._trigger.rest(session, limits)
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
            if (
                await self.compact(Job(agent, signal, target=target, policy=policy, retained=retained))
                is None
            ):
                return

    # -- after a request -------------------------------------------------------------------------

    async def recover(self, failed: RequestFailed) -> bool:
        """Make a history shorter whose request was too large; answers whether that came to anything.

        Summaries are limited, cuts of tool results need no limit: what was cut is not cut again.
        """
        session = failed.agent.session
        before = session.replace_generation
        await self._shorten(failed)
        return session.replace_generation != before

    async def _shorten(self, failed: RequestFailed) -> None:
        session = failed.agent.session
        target = target_of(session)
        if target is None:
            return
        policy = self._trigger.config.for_model(target.provider, target.model)
        limits = self._trigger.limits(session, target, policy)
        total = self._trigger.total(session)
        pruned = self._prune(session, spare_unseen=True)
        if pruned and limits is not None and self._trigger.total(session) < limits.threshold <= total:
            return
        if self._take(failed, policy.max_overflow_retries):
            job = Job(failed.agent, failed.signal, target=target, policy=policy, only_seen=True)
            try:
                done = await self._compact_or_prune(job)
            except CompactionError as error:
                if failed.signal.cancelled:
                    return
                done = False
                self._trigger.warn(session, f"a request was too large, and the history stays: {error}")
            if done and (limits is None or self._trigger.total(session) < limits.window):
                return
        self._prune(session, spare_unseen=False)

    async def _compact_or_prune(self, job: Job) -> bool:
        """A summary of what the model has seen; else its unseen results cut; else a summary of all."""
        if await self.compact(job) is not None:
            return True
        if self._prune(job.session, spare_unseen=False):
            return True
        job.only_seen = False
        return await self.compact(job) is not None

    def _take(self, failed: RequestFailed, limit: int) -> bool:
        """Count a summary; False when the turn has had all it may have since the model's last message."""
        session = failed.agent.session
        replied = session.last("assistant/message")
        since = failed.turn, None if replied is None else replied.seq
        known, count = self._overflows.get(session, (since, 0))
        count = count if known == since else 0
        if count >= limit:
            return False
        self._overflows[session] = since, count + 1
        return True

    def _prune(self, session: Session, *, spare_unseen: bool) -> int:
        pruner = self._ctx.get(TOOL_RESULT_PRUNER)
        if pruner is None:
            return 0
        replied = session.last("assistant/message") if spare_unseen else None
        return pruner.prune(session, spare_from=None if replied is None else replied.seq)

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
        job = Job(agent, signal, target=target, policy=policy, whole_surface=False, command_id=command_id)
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


_LEAST = log_price(checkpoint((), {"compactionId": ""}))
"""What a checkpoint takes beside its summary: a span that takes no more is not worth a request."""
