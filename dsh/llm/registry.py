"""The `llm` service: which adapter serves which route, and the calls that go through them."""

from collections.abc import AsyncIterator, Sequence

from dsh.kernel import CancelToken, Context, Event, ScopeTarget, Service, ServiceKey
from dsh.llm.adapter import LlmAdapter, ModelInfo, ProviderInfo, RetryPolicy
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.session.chunk import Chunk

LLM: "ServiceKey[LlmRegistry]" = ServiceKey("llm")

LLM_STREAM: Event[LlmRequest, AsyncIterator[Chunk]] = Event("llm/stream", "waterfall")
"""Around every model call: a listener `(request, next)` returns an iterator over chunks."""

LLM_ADAPTERS_UPDATED: Event[None, None] = Event("llm/adapters-updated", "emit", contained=True)
"""The set of routes has changed."""


class AdapterDefaults(dict[str, bool]):
    """Which settings the adapter filled in: `{reasoningEffort?: true, maxTokens?: true}`."""


class PreparedCall:
    """A call bound to one generation of one adapter. `stream` can be used once."""

    config: LlmCallConfig
    """With the adapter's defaults filled in."""
    retry_policy: RetryPolicy
    context_window: int | None
    input_modalities: tuple[str, ...] | None
    adapter_defaults: AdapterDefaults

    def stream(self, request: LlmRequest, *, subject: ScopeTarget | None = None) -> AsyncIterator[Chunk]:
        """Make the call. A failure of the adapter arrives as a terminal `Finish`, never as an exception.

        Raises:
            LlmError: `INVALID_PREPARED_CALL`, used twice or with another config than `self.config`.
        """
        raise NotImplementedError


class RouteHandle:
    """A registration of routes. It ends with its owner, or by `dispose()`."""

    def replace(self, routes: Sequence[str]) -> None:
        """Serve these routes instead, at once and all or nothing; none is legal.

        Raises:
            LlmError: `DUPLICATE_ADAPTER`, `INVALID_ADAPTER`, `REGISTRATION_DISPOSED`.
        """
        raise NotImplementedError

    def dispose(self) -> None:
        raise NotImplementedError


class LlmRegistry(Service):
    """The routes of one composition."""

    provide = LLM

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)

    def register_adapter(self, routes: Sequence[str], adapter: LlmAdapter) -> RouteHandle:
        """Serve these routes with this adapter until the caller's fiber goes.

        Raises:
            LlmError: `INVALID_ADAPTER` (no route, an empty name), `DUPLICATE_ADAPTER`.
        """
        raise NotImplementedError

    def list_providers(self) -> tuple[ProviderInfo, ...]:
        raise NotImplementedError

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        raise NotImplementedError

    def resolve_model_info(self, provider: str, model: str) -> ModelInfo:
        raise NotImplementedError

    async def prepare_call(self, config: LlmCallConfig, signal: CancelToken | None = None) -> PreparedCall:
        """Bind a call: take the adapter's generation and fill in its defaults.

        Raises:
            LlmError: `NO_ADAPTER`, `UNSUPPORTED_REASONING_EFFORT`, `INVALID_MODEL_*`.
        """
        raise NotImplementedError

    def stream(self, request: LlmRequest, *, subject: ScopeTarget | None = None) -> AsyncIterator[Chunk]:
        """An unprepared call (titles, summaries, routes served by a listener)."""
        raise NotImplementedError
