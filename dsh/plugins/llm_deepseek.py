"""Row `llm-deepseek`: route `deepseek-official`, every DeepSeek model behind one adapter."""

from collections.abc import Mapping

from dsh.capabilities.anonymous_id import FILE, anonymous_id
from dsh.capabilities.http import HTTP
from dsh.capabilities.launch import HOME_PATH
from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
from dsh.capabilities.settings_section import install_settings_section
from dsh.kernel import Context
from dsh.llm.chat.deepseek import DISPLAY_NAME, PROVIDER, DeepSeekAdapter, DeepSeekRoute
from dsh.llm.directory import ConfigurableProvider
from dsh.llm.registry import LLM
from dsh.llm.request import LlmRequest
from dsh.llm.transport.credential import ContextKeys, hide_key

inject = [LLM, HTTP]
provide = ()


class Config(DeepSeekRoute, frozen=True, kw_only=True):
    """Options of the `llm-deepseek` row and of the settings section of its name (`spec/llm.md` §4.6)."""


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
        ctx.use(HTTP),
        ContextKeys(ctx),
        identity=identity,
        catalogue=lambda: ctx.get(MODEL_CATALOGUE),
    )
    adapter.serve({PROVIDER: config})
    registry = ctx.use(LLM)
    route = registry.register_adapter([PROVIDER], adapter)
    registry.register_configurable_providers(
        [ConfigurableProvider(provider=PROVIDER, display_name=DISPLAY_NAME, settings_ns="llm-deepseek")]
    )
    registry.register_model_discovery("llm-deepseek", adapter.list_served_models)
    hidden = {config.api_key_env}
    hide_key(ctx, config.api_key_env)

    def changed(now: Config) -> None:
        before = adapter.retry_policy(PROVIDER)
        adapter.serve({PROVIDER: now})
        if now.api_key_env not in hidden:
            hidden.add(now.api_key_env)
            hide_key(ctx, now.api_key_env)
        if adapter.retry_policy(PROVIDER) != before:
            route.replace([PROVIDER])

    section = install_settings_section(ctx, "llm-deepseek", Config, config, changed=changed)
