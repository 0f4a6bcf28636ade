"""Row `llm-anthropic`: routes to servers that speak Anthropic's Messages format, any number of them."""

import msgspec

from dsh.capabilities.http import HTTP
from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
from dsh.capabilities.settings_section import install_settings_section
from dsh.kernel import Context
from dsh.llm.anthropic.adapter import AnthropicAdapter
from dsh.llm.anthropic.route import AnthropicRoute
from dsh.llm.failure import LlmError
from dsh.llm.registry import LLM, RouteHandle
from dsh.llm.transport.credential import ContextKeys, hide_key

inject = [LLM, HTTP]
provide = ()


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `llm-anthropic` row and of the settings section of its name (`spec/llm.md` §5.1)."""

    providers: dict[str, AnthropicRoute] = msgspec.field(default_factory=dict)
    """The routes, by the name that sessions call them by; none for no routes."""

    def __post_init__(self) -> None:
        if not all(name.strip() for name in self.providers):
            raise ValueError("a route of providers has no name")


sections = {"llm-anthropic": Config}


def apply(ctx: Context, config: Config) -> None:
    """Serve the routes. A call uses its route as it was when it was prepared, from start to end."""
    adapter = AnthropicAdapter(
        {}, ctx.use(HTTP), ContextKeys(ctx), catalogue=lambda: ctx.get(MODEL_CATALOGUE)
    )
    llm = ctx.use(LLM)
    handle: RouteHandle | None = None
    hidden: set[str] = set()

    def serve(now: Config) -> None:
        nonlocal handle
        before, adapter.routes = adapter.routes, now.providers
        try:
            if handle is not None:
                if _registered(before) != _registered(adapter.routes):
                    handle.replace(list(adapter.routes))
            elif adapter.routes:
                handle = llm.register_adapter(list(adapter.routes), adapter)
        except LlmError:
            adapter.routes = before  # a route that another row serves: nothing of the change counts
            raise
        for route in now.providers.values():
            if route.api_key_env is not None and route.api_key_env not in hidden:
                hidden.add(route.api_key_env)
                hide_key(ctx, route.api_key_env)

    serve(config)
    install_settings_section(ctx, "llm-anthropic", Config, config, changed=serve)


def _registered(routes: dict[str, AnthropicRoute]) -> dict[str, object]:
    """What the registry holds of the routes."""
    return {name: (route.shown_name(name), route.retry_policy) for name, route in routes.items()}
