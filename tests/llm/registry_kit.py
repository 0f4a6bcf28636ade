"""What tests of the registry share: an adapter whose facts can be changed, and a root with the `llm` row."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dsh.kernel import Context
from dsh.llm.adapter import EffortInfo, LlmAdapter, ModelInfo, ProviderInfo, ReasoningInfo, RetryPolicy
from dsh.llm.failure import LlmError
from dsh.llm.registry import LLM, LlmRegistry
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.plugins import llm
from dsh.session.chunk import BlockEnd, BlockStart, Chunk, Finish, TextDelta
from dsh.session.message import user_message

EFFORTS = ReasoningInfo((EffortInfo("low", "Low"), EffortInfo("high", "High")), "high")
REPLY: tuple[Chunk, ...] = (
    BlockStart(0, "text"),
    TextDelta(0, "hi"),
    BlockEnd(0, {"type": "text", "text": "hi"}),
    Finish({"kind": "stop"}),
)


class Adapter(LlmAdapter):
    """Plays chunks or raises; its facts can be changed."""

    def __init__(self, *script: Chunk | Exception, **facts: Any) -> None:
        self.script = script or REPLY
        self.facts: dict[str, Any] = {"reasoning": EFFORTS, "default_max_tokens": 100, **facts}
        self.policy = RetryPolicy()
        self.name = "Test"
        self.seen: list[LlmRequest] = []
        self.closed = 0

    def provider_info(self, provider: str) -> ProviderInfo:
        return ProviderInfo(provider, self.name)

    def retry_policy(self, provider: str) -> RetryPolicy:
        return self.policy

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        return tuple(self.resolve_model(provider, name) for name in self.facts.get("models", ("m",)))

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        facts = {key: value for key, value in self.facts.items() if key != "models"}
        return ModelInfo(**{"provider": provider, "id": model, "name": model, **facts})

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        self.seen.append(request)
        try:
            for item in self.script:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            self.closed += 1


class Running:
    """A root with the `llm` row."""

    def __init__(self) -> None:
        self.ctx = Context()

    async def __aenter__(self) -> "Running":
        await self.ctx.plugin(llm, {})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.ctx.dispose()

    @property
    def llm(self) -> LlmRegistry:
        return self.ctx.use(LLM)


def config(**changes: Any) -> LlmCallConfig:
    return LlmCallConfig(**{"provider": "p", "model": "m", **changes})


def request(call: LlmCallConfig, *messages: Any, **changes: Any) -> LlmRequest:
    return LlmRequest(config=call, messages=messages or (user_message("hi"),), **changes)


async def drained(chunks: AsyncIterator[Chunk]) -> list[Chunk]:
    return [chunk async for chunk in chunks]


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(LlmError) as caught:
        call()
    return caught.value.code


def failure_in(chunks: list[Chunk]) -> Any:
    last = chunks[-1]
    assert isinstance(last, Finish)
    return last.reason
