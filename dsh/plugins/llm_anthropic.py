"""Row `llm-anthropic`: routes to servers that speak Anthropic's Messages format, any number of them."""

from collections.abc import Mapping

import msgspec

from dsh.capabilities.http import HTTP
from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
from dsh.capabilities.settings_section import install_settings_section
from dsh.kernel import Context
from dsh.llm.anthropic.adapter import AnthropicAdapter
from dsh.llm.anthropic.route import AnthropicRoute
from dsh.llm.directory import ConfigurableProvider
from dsh.llm.registry import LLM, RouteHandle
from dsh.llm.transport.credential import ContextKeys, hide_key

SECTION = "llm-anthropic"

inject = [LLM, HTTP]
provide = ()


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `llm-anthropic` row and of the settings section of its name (`spec/llm.md` §5.1)."""

    providers: dict[str, AnthropicRoute] = msgspec.field(default_factory=dict)
    """The routes, by the name that sessions call them by; none for no routes."""

    def __post_init__(self) -> None:
        if not all(name.strip() for name in self.providers):
            raise ValueError("a route of providers has no name")


sections = {SECTION: Config}


def apply(ctx: Context, config: Config) -> None:
    """Serve the routes. A call uses its route as it was when it was prepared, from start to end."""
    adapter = AnthropicAdapter(
        {}, ctx.use(HTTP), ContextKeys(ctx), catalogue=lambda: ctx.get(MODEL_CATALOGUE)
    )
    registry = ctx.use(LLM)
    registry.register_model_discovery(SECTION, adapter.list_served_models)
    listed = registry.register_configurable_providers(())
    handle: RouteHandle | None = None
    hidden: set[str] = set()

    def serve(now: Config) -> None:
        nonlocal handle
        before, adapter.routes = adapter.routes, now.providers
        for route in now.providers.values():
            if route.api_key_env is not None and route.api_key_env not in hidden:
                hidden.add(route.api_key_env)
                hide_key(ctx, route.api_key_env)
        listed.replace([_listed(name, route) for name, route in now.providers.items()])
        if handle is None:
            if adapter.routes:
                handle = registry.register_adapter(list(adapter.routes), adapter)
        elif _registered(before) != _registered(adapter.routes):
            handle.replace(list(adapter.routes))

    def judge(now: Config) -> None:
        for name in now.providers:
            if name not in adapter.routes and registry.owner_of(name) is not None:
                raise ValueError(f"providers: another row serves the route {name} already")

    serve(config)
    install_settings_section(ctx, SECTION, Config, config, validate=judge, changed=serve)


def _listed(name: str, route: AnthropicRoute) -> ConfigurableProvider:
    return ConfigurableProvider(
        provider=name,
        display_name=route.shown_name(name),
        settings_ns=SECTION,
        settings_path=("providers", name),
    )


def _registered(routes: Mapping[str, AnthropicRoute]) -> dict[str, object]:
    """What the registry holds of the routes."""
    return {name: (route.shown_name(name), route.retry_policy) for name, route in routes.items()}
