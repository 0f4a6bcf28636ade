"""The DeepSeek route and its adapter: thinking, defaults and headers on the chat-completions wire."""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Annotated, Literal

import msgspec

from dsh.capabilities.http import HttpClient
from dsh.capabilities.model_catalogue import ModelCatalogue
from dsh.capabilities.model_facts import NO_FACTS, ModelFacts
from dsh.capabilities.settings import CREDENTIAL_REF
from dsh.llm.adapter import EffortInfo, ReasoningInfo
from dsh.llm.chat.dialect import DEEPSEEK
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmRequest
from dsh.llm.route.adapter import Route, RouteAdapter
from dsh.llm.route.config import ModelConfig, RouteConfig
from dsh.llm.transport.credential import KeySources
from dsh.session.chunk import Chunk
from dsh.session.projection.price import Price

PROVIDER = "deepseek-official"
DISPLAY_NAME = "DeepSeek"
DEFAULT_BASE_URL = "https://api.deepseek.com"
BASE_URL_VARIABLE = "DEEPSEEK_BASE_URL"

Effort = Literal["off", "low", "high", "max"]
Thinking = Literal["enabled", "disabled"]

_EFFORTS = {
    "off": EffortInfo("off", "Off", "Answer without thinking"),
    "low": EffortInfo("low", "Low", "Think briefly"),
    "high": EffortInfo("high", "High", "Think thoroughly"),
    "max": EffortInfo("max", "Max", "Think as long as it takes"),
}


class DeepSeekModel(ModelConfig, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """A model of the catalogue. Models outside it work as well, with the row's defaults."""

    name: str | None = None
    """What people call it; unset: its id."""
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


def _default_models() -> list[DeepSeekModel]:
    return [
        DeepSeekModel(id="deepseek-v4-flash", name="DeepSeek-V4-Flash", context_window=1_000_000),
        DeepSeekModel(id="deepseek-v4-pro", name="DeepSeek-V4-Pro", context_window=1_000_000),
        DeepSeekModel(
            id="deepseek-v4-flash-vision-exp",
            name="DeepSeek-V4-Flash-Vision-Exp",
            context_window=1_000_000,
            input_modalities=["text", "image"],
        ),
    ]


class DeepSeekRoute(RouteConfig, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The route of the row `llm-deepseek`."""

    api_key_env: Annotated[str, CREDENTIAL_REF] = "DEEPSEEK_API_KEY"
    """Name of the key, as an environment variable or in the credentials file; never the key itself."""
    base_url: str | None = msgspec.field(default=None, name="baseURL")
    """Endpoint; unset: `DEEPSEEK_BASE_URL`, else the public one."""
    thinking: Thinking | None = None
    """Whether the deployment thinks; `disabled` forbids every effort but `off`."""
    reasoning_effort: Effort | None = None
    """Effort of requests that ask for none; unset: `high`."""
    max_tokens: int = 256_000
    """Longest reply, in tokens, where neither the request nor the model says otherwise."""
    default_context_window: int = 1_000_000
    """Window of models outside the catalogue, in tokens."""
    models: list[DeepSeekModel] = msgspec.field(default_factory=_default_models)
    """The catalogue: what is known of each model. Others can be used as well."""
    detect_leaked_calls: bool = True
    """A reply whose text is a tool call in the model's own markup is repeated, not taken as an answer."""
    identity_headers: bool = False
    """Send the session's id and this home's anonymous id to the endpoint."""

    # of the image path, which is not built: known, so that rows written for it load
    max_request_files_bytes: int = 128 * 1024 * 1024
    """Of the image path, which is not built: no effect."""
    max_inline_request_image_bytes: int = 20 * 1024 * 1024
    """The same: no effect."""
    max_images_per_request: int = 600
    """The same: no effect."""
    files_api_timeout_ms: float = 60_000
    """The same: no effect."""
    file_expires_after_seconds: int = 604_800
    """The same: no effect."""
    file_refresh_margin_seconds: int = 3_600
    """The same: no effect."""
    file_quota_cleanup_batch: int = 100
    """The same: no effect."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.thinking == "disabled" and self.reasoning_effort not in (None, "off"):
            raise ValueError(f"thinking is disabled, so reasoningEffort cannot be {self.reasoning_effort}")
        if self.max_tokens <= 0 or self.default_context_window <= 0:
            raise ValueError("maxTokens and defaultContextWindow must be above 0")

    def shown_name(self, route: str) -> str:
        return DISPLAY_NAME

    @property
    def url_variable(self) -> str:
        return BASE_URL_VARIABLE

    @property
    def public_url(self) -> str:
        return DEFAULT_BASE_URL


class DeepSeekAdapter(RouteAdapter[DeepSeekRoute]):
    """Serves every model id of the route."""

    row = "llm-deepseek"

    def __init__(
        self,
        http: HttpClient,
        keys: KeySources,
        *,
        identity: Callable[[LlmRequest], Mapping[str, str]] = lambda _: {},
        catalogue: Callable[[], ModelCatalogue | None] = lambda: None,
    ) -> None:
        super().__init__(http, keys, catalogue=catalogue)
        self._identity = identity

    def _call(self, route: Route[DeepSeekRoute], request: LlmRequest) -> AsyncIterator[Chunk]:
        more = dict(self._identity(request))
        if request.purpose == "compaction":
            more["x-deepseek-harness-compact"] = "1"
        config = route.config
        endpoint = self._endpoint(route, "chat/completions", headers=more)
        thinking, effort = thinking_of(request, config.thinking, config.reasoning_effort)
        from dsh.llm.chat.call import stream_chat
        from dsh.llm.chat.translator import ReplyRules

        return stream_chat(
            self._http,
            endpoint,
            request,
            DEEPSEEK,
            owner=self,
            thinking=thinking,
            effort=effort,
            rules=ReplyRules(detect_leaked_calls=config.detect_leaked_calls),
        )

    def _place(self, route: Route[DeepSeekRoute]) -> str:
        return self.row

    def _vendor(self, route: Route[DeepSeekRoute], model: str) -> tuple[str | None, bool]:
        # the shipped catalogue has no price here: DeepSeek's depend on the hour
        return (None if route.config.listed(model) is not None else "deepseek"), True

    def _facts(self, route: Route[DeepSeekRoute], model: str, served: ModelFacts = NO_FACTS) -> ModelFacts:
        return super()._facts(route, model)  # the server's list says nothing better

    def _abilities(
        self, route: Route[DeepSeekRoute], model: str, facts: ModelFacts
    ) -> tuple[int, ReasoningInfo]:
        config, entry = route.config, route.config.listed(model)
        offered = ["off"] if config.thinking == "disabled" else list(_EFFORTS)
        default = "off" if config.thinking == "disabled" else config.reasoning_effort or "high"
        longest = None if entry is None else entry.max_tokens
        return (
            longest or min(config.max_tokens, facts.max_output_tokens or config.max_tokens),
            ReasoningInfo(tuple(_EFFORTS[name] for name in offered), default),
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
