"""How a row serves the routes of its config and its settings, and follows their changes."""

from collections.abc import Mapping
from typing import Any

import msgspec

from dsh.capabilities.settings_section import install_settings_section
from dsh.kernel import Context
from dsh.llm.directory import ConfigurableProvider
from dsh.llm.registry import LLM, RouteHandle
from dsh.llm.route.adapter import Route, RouteAdapter
from dsh.llm.route.config import RouteConfig
from dsh.llm.transport.credential import hide_key


class RoutesConfig(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The config of such a row, and of the settings section of its name."""

    providers: Mapping[str, RouteConfig] = msgspec.field(default_factory=dict)
    """The routes, by the name that sessions call them by; none for no routes."""

    def __post_init__(self) -> None:
        if not all(name.strip() for name in self.providers):
            raise ValueError("a route of providers has no name")


def serve_routes(ctx: Context, config: RoutesConfig, adapter: RouteAdapter[Any]) -> None:
    """Serve the routes. A call uses its route as it was when it was prepared, from start to end."""
    section, registry = adapter.row, ctx.use(LLM)
    listed = registry.register_configurable_providers(())
    handle: RouteHandle | None = None
    hidden: set[str] = set()

    def serve(now: RoutesConfig) -> None:
        nonlocal handle
        before = _registered(adapter.routes)
        adapter.serve(now.providers)
        if handle is None:
            if adapter.routes:
                handle = registry.register_adapter(list(adapter.routes), adapter)
        elif before != _registered(adapter.routes):
            handle.replace(list(adapter.routes))
        listed.replace([_listed(section, route) for route in adapter.routes.values()])
        keys = {route.api_key_env for route in now.providers.values() if route.api_key_env is not None}
        for key in sorted(keys - hidden):
            hide_key(ctx, key)
        hidden.update(keys)

    def judge(now: RoutesConfig) -> None:
        for name in now.providers:
            owner = registry.owner_of(name)
            if owner is not None and name not in adapter.routes:
                raise ValueError(f"providers: {owner.row_chain} serves the route {name} already")

    serve(config)
    registry.register_model_discovery(section, adapter.list_served_models)
    install_settings_section(ctx, section, type(config), config, validate=judge, changed=serve)


def _listed(section: str, route: Route[Any]) -> ConfigurableProvider:
    return ConfigurableProvider(
        provider=route.name,
        display_name=route.display_name,
        settings_ns=section,
        settings_path=("providers", route.name),
    )


def _registered(routes: Mapping[str, Route[Any]]) -> dict[str, object]:
    """What the registry holds of the routes."""
    return {name: (route.display_name, route.policy) for name, route in routes.items()}
