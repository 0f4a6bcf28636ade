"""Row `llm-deepseek`: route `deepseek-official`, every DeepSeek model behind one adapter."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from dsh.capabilities.anonymous_id import FILE, anonymous_id
from dsh.capabilities.bounds import MAX_TIMER_MS
from dsh.capabilities.http import HTTP
from dsh.capabilities.launch import HOME_PATH
from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
from dsh.capabilities.settings import CREDENTIAL_REF
from dsh.capabilities.settings_section import install_settings_section
from dsh.kernel import Context
from dsh.llm.chat.deepseek import (
    DISPLAY_NAME,
    PROVIDER,
    DeepSeekAdapter,
    DeepSeekModel,
    DeepSeekSettings,
    Effort,
    Thinking,
)
from dsh.llm.directory import ConfigurableProvider
from dsh.llm.registry import LLM
from dsh.llm.request import LlmRequest
from dsh.llm.retry import RetryConfig
from dsh.llm.transport.credential import ContextKeys, hide_key, is_key_name
from dsh.llm.transport.endpoint import base_url_problem
from dsh.llm.transport.watchdog import StreamLimits

inject = [LLM, HTTP]
provide = ()


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


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `llm-deepseek` row and of the settings section of its name (`spec/llm.md` §4.6)."""

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
    stream_idle_timeout_ms: float = 300_000
    """Longest silence while something is waited for."""
    first_token_timeout_ms: float | None = None
    """Longest wait for the first piece of a reply; unset: no limit of its own."""
    total_timeout_ms: float | None = None
    """Longest reply in time; unset: no limit."""
    retry_policy: RetryConfig = msgspec.field(default_factory=RetryConfig)
    """When a failed request is repeated, and how long is waited before."""
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
        if self.base_url is not None and (problem := base_url_problem(self.base_url.strip())) is not None:
            raise ValueError(f"baseURL {problem}")
        if not is_key_name(self.api_key_env):
            raise ValueError("apiKeyEnv is not the name of a variable; name the one that holds the key")
        if self.thinking == "disabled" and self.reasoning_effort not in (None, "off"):
            raise ValueError(f"thinking is disabled, so reasoningEffort cannot be {self.reasoning_effort}")
        if self.max_tokens <= 0 or self.default_context_window <= 0:
            raise ValueError("maxTokens and defaultContextWindow must be above 0")
        ids = [model.id for model in self.models]
        if not all(ids) or len(set(ids)) < len(ids):
            raise ValueError("models must have ids, each of them once")
        limits = (self.stream_idle_timeout_ms, self.first_token_timeout_ms, self.total_timeout_ms)
        if any(limit is not None and not 0 < limit <= MAX_TIMER_MS for limit in limits):
            raise ValueError(f"timeouts must be above 0 and at most {MAX_TIMER_MS} ms")


sections = {"llm-deepseek": Config}


def apply(ctx: Context, config: Config) -> None:
    """Serve the route. A call uses the options as they were when it was prepared, from start to end."""

    def identity(request: LlmRequest) -> Mapping[str, str]:
        if not section.get().identity_headers:
            return {}
        headers = {}
        if (home := ctx.get(HOME_PATH)) is not None:
            headers["x-deepseek-harness-user-id"] = anonymous_id(home(FILE))
        if request.session_id:
            headers["x-deepseek-harness-session-id"] = request.session_id
        return headers

    adapter = DeepSeekAdapter(
        settings_of(config),
        ctx.use(HTTP),
        ContextKeys(ctx),
        identity=identity,
        catalogue=lambda: ctx.get(MODEL_CATALOGUE),
    )
    registry = ctx.use(LLM)
    route = registry.register_adapter([PROVIDER], adapter)
    registry.register_configurable_providers(
        [ConfigurableProvider(provider=PROVIDER, display_name=DISPLAY_NAME, settings_ns="llm-deepseek")]
    )
    registry.register_model_discovery("llm-deepseek", adapter.list_served_models)
    hidden = {config.api_key_env}
    hide_key(ctx, config.api_key_env)

    def changed(now: Config) -> None:
        before, adapter.settings = adapter.settings, settings_of(now)
        if now.api_key_env not in hidden:
            hidden.add(now.api_key_env)
            hide_key(ctx, now.api_key_env)
        if adapter.settings.retry_policy != before.retry_policy:
            route.replace([PROVIDER])

    section = install_settings_section(ctx, "llm-deepseek", Config, config, changed=changed)


def settings_of(config: Config) -> DeepSeekSettings:
    """The adapter's view of a row."""
    return DeepSeekSettings(
        api_key_env=config.api_key_env,
        base_url=config.base_url,
        thinking=config.thinking,
        reasoning_effort=config.reasoning_effort,
        max_tokens=config.max_tokens,
        default_context_window=config.default_context_window,
        models=tuple(config.models),
        detect_leaked_calls=config.detect_leaked_calls,
        limits=StreamLimits(
            idle_ms=config.stream_idle_timeout_ms,
            first_token_ms=config.first_token_timeout_ms,
            total_ms=config.total_timeout_ms,
        ),
        retry_policy=config.retry_policy.policy(),
    )
