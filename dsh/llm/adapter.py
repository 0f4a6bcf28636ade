"""What an adapter is: code for one wire format, serving one or more provider routes."""

from collections.abc import AsyncIterator, Callable
from typing import Literal, Protocol

import msgspec

from dsh.llm.request import LlmRequest
from dsh.session.chunk import Chunk
from dsh.session.projection.price import Price

DEFAULT_RETRYABLE_CODES = (
    "EMPTY_RESPONSE",
    "HTTP_408",
    "HTTP_425",
    "INSUFFICIENT_SYSTEM_RESOURCE",
    "MALFORMED_RESPONSE",
    "RATE_LIMIT",
    "SERVER",
    "STREAM_CLOSED",
    "TIMEOUT",
    "TRANSPORT",
)
"""`design.md` §10.20."""


class ProviderInfo(msgspec.Struct, frozen=True):
    """A route as people see it."""

    provider: str
    display_name: str


class EffortInfo(msgspec.Struct, frozen=True):
    """One reasoning effort that a model offers."""

    id: str
    name: str
    description: str | None = None


class ReasoningInfo(msgspec.Struct, frozen=True):
    """The reasoning efforts of a model and the one taken when none is asked for."""

    efforts: tuple[EffortInfo, ...]
    default_effort: str | None = None


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an adapter knows of one model."""

    provider: str
    id: str
    name: str
    description: str | None = None
    input_modalities: tuple[str, ...] | None = None
    context_window: int | None = None
    """In tokens."""
    default_max_tokens: int | None = None
    reasoning: ReasoningInfo | None = None
    price: Price | None = None
    """What its tokens cost on this route, where that is known."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """When and how often a failed attempt is repeated (`spec/llm.md` §6)."""

    mode: Literal["normal", "always"] = "normal"
    max_retries: int = 5
    retryable_codes: tuple[str, ...] = DEFAULT_RETRYABLE_CODES
    initial_delay_ms: float = 500
    max_delay_ms: float = 10_000
    jitter_ratio: float = 0.1
    max_provider_delay_ms: float = 300_000
    """The longest `Retry-After` that is honoured; not part of the policy's key in the log."""


StreamFunction = Callable[[LlmRequest], AsyncIterator[Chunk]]
"""One provider attempt: chunks in order, usage before finish, nothing after."""


class Generation(msgspec.Struct, frozen=True):
    """Model facts and stream function taken together, so that a change of settings cannot mix them."""

    info: ModelInfo
    stream: StreamFunction


class LlmAdapter(Protocol):
    """An adapter. Only `stream` is mandatory; inherit to get the other answers.

    `stream` makes exactly one attempt, honours `request.signal`, and either ends with one `Finish` or
    raises (best an `LlmError`). Closing the iterator ends the attempt at once.
    """

    def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]: ...

    def provider_info(self, provider: str) -> ProviderInfo:
        return ProviderInfo(provider, provider)

    def retry_policy(self, provider: str) -> RetryPolicy:
        return RetryPolicy()

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        return ()

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return ModelInfo(provider=provider, id=model, name=model)

    async def prepare(self, provider: str, model: str) -> Generation:
        return Generation(self.resolve_model(provider, model), self.stream)
