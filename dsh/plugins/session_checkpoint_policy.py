"""Row `session-checkpoint-policy`: what is about to have an effect is durable before it has it.

Three barriers: before a model call, before the body of an agent's own tool call, and before each step. A
barrier that fails stops what it stands before. There is none at the end of a turn: whoever reports success
flushes first (`spec/persistence.md` §5).
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from dsh.agent.contract import AGENT_PRE_STEP, PreStep, PreStepDecision
from dsh.kernel import Cancelled, Context
from dsh.llm.registry import LLM_STREAM
from dsh.llm.request import LlmRequest
from dsh.llm.stream import close_stream
from dsh.session.chunk import Chunk
from dsh.session.log import Session
from dsh.session.store import SESSIONS
from dsh.tools.error import AbortError
from dsh.tools.event import TOOLS_EXECUTE
from dsh.tools.execution import ToolExecution, ToolResult
from dsh.tools.outcome import failure_of

inject = [SESSIONS]
provide = ()


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    sessions = ctx.use(SESSIONS)

    def is_live(session: Session) -> bool:
        return sessions.get(session.id) is session

    async def stream(session: Session, following: Callable[[], AsyncIterator[Chunk]]) -> AsyncIterator[Chunk]:
        await sessions.flush(session)
        chunks = following()
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await close_stream(chunks)

    def before_request(
        request: LlmRequest, following: Callable[[], AsyncIterator[Chunk]]
    ) -> AsyncIterator[Chunk]:
        session = sessions.get(request.session_id) if request.session_id is not None else None
        return following() if session is None else stream(session, following)

    async def before_tool(
        execution: ToolExecution, following: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        agent = execution.agent
        if agent is not None and execution.parent is None and is_live(agent.session):
            try:
                await execution.signal.race(sessions.flush(agent.session))
                execution.signal.raise_if_cancelled()
            except Cancelled:
                return failure_of(AbortError(started=False))
        return await following()

    async def before_step(
        step: PreStep, following: Callable[[], Awaitable[PreStepDecision]]
    ) -> PreStepDecision:
        if is_live(step.agent.session):
            await sessions.flush(step.agent.session)
        return await following()

    ctx.on(LLM_STREAM, before_request)
    ctx.on(TOOLS_EXECUTE, before_tool)
    ctx.on(AGENT_PRE_STEP, before_step)
