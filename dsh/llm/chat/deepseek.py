"""The DeepSeek adapter: thinking, defaults and headers of its route on the chat-completions wire."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import msgspec

from dsh import __version__
from dsh.capabilities.http import HttpClient, host_of
from dsh.capabilities.model_catalogue import ModelCatalogue, known_of
from dsh.capabilities.model_facts import ModelFacts
from dsh.llm.adapter import (
    EffortInfo,
    Generation,
    LlmAdapter,
    ModelInfo,
    ProviderInfo,
    ReasoningInfo,
    RetryPolicy,
)
from dsh.llm.chat.dialect import DEEPSEEK
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.stream import close_stream
from dsh.llm.transport.credential import KeySources, find_key
from dsh.llm.transport.endpoint import Endpoint, base_url_problem, joined
from dsh.llm.transport.watchdog import StreamLimits
from dsh.session.chunk import Chunk
from dsh.session.projection.price import Price

if TYPE_CHECKING:
    from dsh.llm.transport.discovery import Discovery

PROVIDER = "deepseek-official"
DISPLAY_NAME = "DeepSeek"
DEFAULT_BASE_URL = "https://api.deepseek.com"
BASE_URL_VARIABLE = "DEEPSEEK_BASE_URL"
USER_AGENT = f"dsh/{__version__}"
"""Attribution on every request."""

Effort = Literal["off", "low", "high", "max"]
Thinking = Literal["enabled", "disabled"]

_EFFORTS = {
    "off": EffortInfo("off", "Off", "Answer without thinking"),
    "low": EffortInfo("low", "Low", "Think briefly"),
    "high": EffortInfo("high", "High", "Think thoroughly"),
    "max": EffortInfo("max", "Max", "Think as long as it takes"),
}


class DeepSeekModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A model of the catalogue. Models outside it work as well, with the row's defaults."""

    id: str
    """What a request calls the model."""
    name: str | None = None
    """What people call it; unset: its id."""
    description: str | None = None
    """One line about it, for lists."""
    context_window: int | None = None
    """In tokens; unset: the row's `defaultContextWindow`."""
    max_tokens: int | None = None
    """Longest reply, in tokens; unset: the row's `maxTokens`."""
    input_modalities: list[Literal["text", "image"]] = msgspec.field(default_factory=lambda: ["text"])
    """What it takes."""
    price: Price | None = None
    """What its tokens cost on this endpoint; unset: no cost is shown, unless the settings know one."""
    image_pixel_budget: int | None = None
    """Of the image path, which is not built: no effect."""
    image_max_bytes: int | None = None
    """The same: no effect."""
    image_detail: str | None = None
    """The same: no effect."""


class DeepSeekSettings(msgspec.Struct, frozen=True, eq=False, weakref=True, kw_only=True):
    """One valid state of the row's settings. A call uses the same one from start to end."""

    api_key_env: str
    base_url: str | None
    """As configured; None for the environment's or the public one."""
    thinking: Thinking | None
    reasoning_effort: Effort | None
    max_tokens: int
    default_context_window: int
    models: tuple[DeepSeekModel, ...]
    detect_leaked_calls: bool
    limits: StreamLimits
    retry_policy: RetryPolicy


class DeepSeekAdapter(LlmAdapter):
    """Serves every model id of the route. State: the current settings."""

    def __init__(
        self,
        settings: DeepSeekSettings,
        http: HttpClient,
        keys: KeySources,
        *,
        identity: Callable[[LlmRequest], Mapping[str, str]] = lambda _: {},
        catalogue: Callable[[], ModelCatalogue | None] = lambda: None,
    ) -> None:
        self.settings = settings
        self._http = http
        self._keys = keys
        self._identity = identity
        self._catalogue = catalogue
        self._discovery: Discovery | None = None

    def provider_info(self, provider: str) -> ProviderInfo:
        return ProviderInfo(provider, DISPLAY_NAME)

    def retry_policy(self, provider: str) -> RetryPolicy:
        return self.settings.retry_policy

    def list_models(self, provider: str) -> tuple[ModelInfo, ...]:
        return tuple(self._info(self.settings, provider, model.id) for model in self.settings.models)

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return self._info(self.settings, provider, model)

    async def prepare(self, provider: str, model: str) -> Generation:
        settings = self.settings
        with contextlib.suppress(LlmError):  # the call itself reports it
            self._http.warm(self._base_url(settings))

        def stream(request: LlmRequest) -> AsyncIterator[Chunk]:
            return self._stream(settings, request)

        return Generation(self._info(settings, provider, model), stream)

    def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        return self._stream(self.settings, request)

    async def list_served_models(self, provider: str) -> tuple[ModelInfo, ...]:
        """The models that the server itself lists; remembered for a while.

        Raises:
            LlmError: it lists none, or does not answer.
        """
        settings = self.settings
        if self._discovery is None:
            from dsh.llm.transport.discovery import Discovery

            self._discovery = Discovery(self._http)
        served = await self._discovery.of(self._endpoint(settings, "models", "application/json"))
        return tuple(self._info(settings, provider, model.id) for model in served)

    async def _stream(self, settings: DeepSeekSettings, request: LlmRequest) -> AsyncIterator[Chunk]:
        more = dict(self._identity(request))
        if request.purpose == "compaction":
            more["x-deepseek-harness-compact"] = "1"
        endpoint = self._endpoint(settings, "chat/completions", "text/event-stream", more)
        thinking, effort = thinking_of(request, settings.thinking, settings.reasoning_effort)
        from dsh.llm.chat.call import stream_chat
        from dsh.llm.chat.translator import ReplyRules

        async def known_models() -> Sequence[str]:
            ids = [model.id for model in settings.models]
            with contextlib.suppress(LlmError):
                ids += [found.id for found in await self.list_served_models(request.config.provider)]
            return ids

        chunks = stream_chat(
            self._http,
            endpoint,
            request,
            DEEPSEEK,
            owner=self,
            thinking=thinking,
            effort=effort,
            known_models=known_models,
            rules=ReplyRules(detect_leaked_calls=settings.detect_leaked_calls),
        )
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await close_stream(chunks)

    def _endpoint(
        self, settings: DeepSeekSettings, path: str, accept: str, headers: Mapping[str, str] | None = None
    ) -> Endpoint:
        key = find_key(self._keys, settings.api_key_env, DISPLAY_NAME)
        base_url = self._base_url(settings)
        return Endpoint(
            url=joined(base_url, path),
            headers={
                "authorization": f"Bearer {key.value}",
                "content-type": "application/json",
                "accept": accept,
                "accept-encoding": "identity",
                "user-agent": USER_AGENT,
                **(headers or {}),
            },
            provider=DISPLAY_NAME,
            shown_url=host_of(base_url).rstrip("/"),
            secret=key.value,
            limits=settings.limits,
            longest_wait_ms=_longest_wait_ms(settings.retry_policy),
            key_origin=key.where,
        )

    def _info(self, settings: DeepSeekSettings, provider: str, model: str) -> ModelInfo:
        """What is said of a model by its id; one that nobody knows has the row's defaults."""
        listed = next((entry for entry in settings.models if entry.id == model), None)
        entry = listed or DeepSeekModel(id=model)
        row = ModelFacts(name=entry.name, context_window=entry.context_window, price=entry.price)
        # the shipped catalogue has no price here: DeepSeek's depend on the hour
        vendor = "deepseek" if listed is None else None
        known = known_of(self._catalogue(), provider, model, row=row, vendor=vendor)
        return _model_info(settings, provider, entry, known)

    def _base_url(self, settings: DeepSeekSettings) -> str:
        """The base URL: configured, from the environment, or the public one."""
        given, where = settings.base_url or "", "llm-deepseek.baseURL"
        if not given.strip() and self._keys.environment is not None:
            variable = self._keys.environment.get_from(BASE_URL_VARIABLE, ("process",))
            given, where = (variable.value if variable is not None else ""), BASE_URL_VARIABLE
        url = given.strip() or DEFAULT_BASE_URL
        if (problem := base_url_problem(url)) is not None:
            raise LlmError.of(
                "INVALID_BASE_URL",
                f"{where} {problem}; set it to one such as {DEFAULT_BASE_URL}, or unset it",
            )
        return url


def _longest_wait_ms(policy: RetryPolicy) -> float | None:
    return policy.max_provider_delay_ms if policy.mode == "normal" else None


def _model_info(
    settings: DeepSeekSettings, provider: str, model: DeepSeekModel, known: ModelFacts
) -> ModelInfo:
    offered = ["off"] if settings.thinking == "disabled" else list(_EFFORTS)
    default = "off" if settings.thinking == "disabled" else settings.reasoning_effort or "high"
    longest = known.max_output_tokens or settings.max_tokens
    return ModelInfo(
        provider=provider,
        id=model.id,
        name=known.name or model.id,
        description=model.description,
        input_modalities=("text",),  # images have no way onto this wire yet
        context_window=known.context_window or settings.default_context_window,
        default_max_tokens=model.max_tokens or min(settings.max_tokens, longest),
        reasoning=ReasoningInfo(tuple(_EFFORTS[name] for name in offered), default),
        price=known.price,
    )


def thinking_of(
    request: LlmRequest, thinking: Thinking | None, configured: Effort | None
) -> tuple[bool | None, str | None]:
    """Whether the model is to think, None for as it likes, and how hard; `off` is never an effort.

    Raises:
        LlmError: `UNSUPPORTED_REASONING_EFFORT`.
    """
    if request.purpose == "session-title":
        return False, None
    effort = request.config.reasoning_effort or configured
    if effort is not None and effort not in _EFFORTS:
        raise LlmError.of(
            "UNSUPPORTED_REASONING_EFFORT", f"reasoning effort {effort!r} is none of {', '.join(_EFFORTS)}"
        )
    if effort is None:
        return (None if thinking is None else thinking == "enabled"), None
    if effort == "off":
        return False, None
    if thinking == "disabled":
        raise LlmError.of(
            "UNSUPPORTED_REASONING_EFFORT",
            f"thinking is disabled by configuration, effort {effort!r} needs it",
        )
    return True, effort
