"""The model of a simulated run: it answers by plan."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

from dsh.kernel import CancelToken
from dsh.llm.adapter import LlmAdapter, ModelInfo
from dsh.llm.request import LlmRequest
from dsh.session.chunk import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
)
from tests.agent.simulation.plan import CallPlan, ReplyPlan
from tests.agent.simulation.record import Life

WINDOW_TOKENS = 4_000


class Model(LlmAdapter):
    """One adapter for all agents; each has its own replies."""

    def __init__(self, life_of: Callable[[str], Life]) -> None:
        self._life_of = life_of
        self.replies: dict[str, list[ReplyPlan]] = {}
        """By session."""
        self.summaries: dict[str, str] = {}
        """The same: how each summary is answered."""

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return ModelInfo(
            provider=provider, id=model, name=model, context_window=WINDOW_TOKENS, default_max_tokens=100
        )

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        assert request.session_id is not None
        life, left = self._life_of(request.session_id), self.replies[request.session_id]
        if request.purpose is None:
            life.requests.append(request)
            reply = left.pop(0) if left else ReplyPlan("text")
        else:
            reply = ReplyPlan(self.summaries[request.session_id])
        for chunk in _chunks(reply, f"{life.way}-{len(life.requests)}"):
            await asyncio.sleep(reply.gap_ms / 1000)
            yield chunk
        if reply.kind == "hang":
            await (request.signal or CancelToken()).sleep(1e6)
        if reply.kind == "raise":
            raise ValueError("the adapter is broken")
        if reply.kind == "exit":
            raise SystemExit(3)


def _chunks(reply: ReplyPlan, number: str) -> list[Chunk]:
    usage: list[Chunk] = []
    if reply.input_tokens:
        usage = [UsageChunk({"inputTokens": reply.input_tokens, "outputTokens": 7})]
    match reply.kind:
        case "retryable" | "final" | "overflow":
            code = {"retryable": "SERVER", "final": "QUOTA", "overflow": "CONTEXT_WINDOW_EXCEEDED"}[
                reply.kind
            ]
            return [*usage, Finish({"kind": "error", "failure": {"message": "planned", "code": code}})]
        case "empty":
            return [*usage, Finish({"kind": "stop"})]
        case "hang" | "raise" | "exit":
            return [BlockStart(0, "text"), *[TextDelta(0, "so ")] * (reply.pieces - 1)]
    out: list[Chunk] = []
    if reply.kind == "thought":
        out += [BlockStart(0, "reasoning"), *[ReasoningDelta(0, "hm ")] * reply.pieces]
        out.append(BlockEnd(0, {"type": "reasoning", "text": "hm " * reply.pieces}))
    else:
        out += [BlockStart(0, "text"), *[TextDelta(0, "word ")] * reply.pieces]
        out.append(BlockEnd(0, {"type": "text", "text": "word " * reply.pieces}))
    if reply.kind == "calls":
        for index, call in enumerate(reply.calls, 1):
            call_id, raw = f"c-{number}-{index}", _arguments_of(call)
            block = {"type": "tool-call", "id": call_id, "name": call.tool, "arguments": raw}
            out += [
                BlockStart(index, "tool-call"),
                ToolCallDelta(index, call_id, call.tool, raw),
                BlockEnd(index, block),
            ]
    finish = {"calls": "tool-calls", "cut": "max-tokens"}.get(reply.kind, "stop")
    return [*out, *usage, Finish({"kind": finish})]


def _arguments_of(call: CallPlan) -> str:
    """As the model writes them."""
    if call.raw is not None:
        return call.raw
    fields = {"key": call.key, "took_ms": call.took_ms, "outcome": call.outcome, "heeds": call.heeds}
    return json.dumps(fields)
