"""The model call that writes a summary: what is asked, and which answers count.

The request begins with the very bytes of the session's last one (system text, tools, messages), so that the
provider's cache holds; the instruction comes last (`spec/tools.md` §9).
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dsh.agent.grace import Grace, NoOutcome
from dsh.agent.transcript import Started, outgoing
from dsh.capabilities.agent import AgentRef
from dsh.errors import DshError
from dsh.kernel import CancelToken, ScopeTarget
from dsh.llm.auxiliary import Answer, ask
from dsh.llm.registry import LlmRegistry
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.plugins.compaction_basic.config import Policy
from dsh.plugins.compaction_basic.instruction import instruction
from dsh.plugins.compaction_basic.span import Span
from dsh.session.message import ToolSchema

GRACE_S = 2.0
"""How long a call may go on after its cancellation; less than the loop gives its listeners."""
THINKING_TOKENS = {"off": 0, "low": 4_096, "medium": 8_192, "high": 16_384}
"""What an effort may use of a reply's tokens before the first word of the summary."""
MOST_THINKING_TOKENS = 32_768
"""The same for an effort that is none of those."""


class SummaryError(DshError):
    """The model gave no summary that could take the place of anything."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary and what there is to tell of its making."""

    blocks: Sequence[Mapping[str, Any]]
    """Its text blocks, none of them blank."""
    raw_output: Sequence[Mapping[str, Any]]
    """Everything the model said."""
    provider: str
    model: str
    max_tokens: int
    usage: Mapping[str, Any] | None


class Job(msgspec.Struct, frozen=True, eq=False):
    """What one compaction is to do."""

    agent: AgentRef
    """Whose history it is, and whose listeners of `llm/stream` see the request for the summary."""
    signal: CancelToken
    target: LlmCallConfig
    """The model that works on the task, and with which effort."""
    policy: Policy
    retained: int = 0
    """How many tokens of the history's end stay; the last node always does."""
    turn_began: int | None = None
    """Leave what waits for a reply in the turn that began at this seq."""
    whole_surface: bool = True
    """Give up when anything of the surface changes meanwhile."""
    command_id: str | None = None


async def summarized(span: Span, job: Job, llm: LlmRegistry) -> Summary:
    """A summary of a beginning of the history.

    Raises:
        SummaryError: the answer is none.
        LlmError: the call failed, repeated as its route's policy says.
        Cancelled: the job's signal.
    """
    session, signal, config = job.agent.session, job.signal, _config(job, llm)
    header: Mapping[str, Any] = session.request_header or {}
    request = LlmRequest(
        config=config,
        messages=(*outgoing(span.messages, Started(session)), instruction()),
        system=header.get("system"),
        tools=tuple(_schema(tool) for tool in header.get("tools", ())),
        session_id=session.id,
        purpose="compaction",
        signal=signal,
    )
    asking = ask(llm, request, subject=ScopeTarget(job.agent), log=job.agent.session)
    try:
        answer = await Grace(signal, _end, GRACE_S).wait(asking, "a summary")
    except NoOutcome:
        signal.raise_if_cancelled()
        raise
    signal.raise_if_cancelled()
    return Summary(
        blocks=_text_of(answer),
        raw_output=answer.blocks,
        provider=config.provider,
        model=config.model,
        max_tokens=config.max_tokens or job.policy.max_tokens,
        usage=answer.usage,
    )


def _end(task: "asyncio.Task[Any]", who: str) -> None:
    task.cancel()


def _config(job: Job, llm: LlmRegistry) -> LlmCallConfig:
    target, policy = job.target, job.policy
    provider, model = policy.provider or target.provider, policy.model or target.model
    info = llm.resolve_model_info(provider, model)
    effort = policy.effort
    if effort is None and (provider, model) == (target.provider, target.model):
        effort = target.reasoning_effort
    max_tokens = policy.max_tokens
    if info.reasoning is not None:
        thinks = effort or info.reasoning.default_effort or "off"
        max_tokens += THINKING_TOKENS.get(thinks, MOST_THINKING_TOKENS)
    if info.default_max_tokens is not None:
        max_tokens = min(max_tokens, max(info.default_max_tokens, policy.max_tokens))
    return LlmCallConfig(provider, model, reasoning_effort=effort, max_tokens=max_tokens)


def _schema(tool: Mapping[str, Any]) -> ToolSchema:
    return ToolSchema(tool["name"], tool["description"], tool["parameters"])


def _text_of(answer: Answer) -> tuple[Mapping[str, Any], ...]:
    """The text blocks that say something.

    Raises:
        SummaryError: there are none, the answer is cut off, or there is an image in it.
    """
    if answer.finish not in ("stop", "tool-calls"):
        cut = "it reached the limit of output tokens" if answer.finish == "max-tokens" else answer.finish
        raise SummaryError(f"the summary is incomplete: {cut}", hint="raise compaction-basic.maxTokens")
    if any(block["type"] == "image" for block in answer.blocks):
        raise SummaryError("the summary holds an image, expected text only")
    texts = tuple(block for block in answer.blocks if block["type"] == "text" and block["text"].strip())
    if not texts:
        kinds = ", ".join(sorted({block["type"] for block in answer.blocks})) or "nothing"
        raise SummaryError(f"the model gave no text for a summary, found {kinds}")
    return texts
