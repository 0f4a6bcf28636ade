"""Row `llm-openai`: routes to servers that speak OpenAI's chat completions, as many as are configured."""

from collections.abc import Mapping

import msgspec

from dsh.capabilities.http import HTTP
from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
from dsh.capabilities.settings_section import install_settings_section
from dsh.kernel import Context
from dsh.llm.chat.openai import OpenAiAdapter
from dsh.llm.chat.route import ChatRoute, RouteSettings
from dsh.llm.directory import ConfigurableProvider
from dsh.llm.registry import LLM, RouteHandle
from dsh.llm.transport.credential import ContextKeys, hide_key

SECTION = "llm-openai"

inject = [LLM, HTTP]
provide = ()


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `llm-openai` row and of the settings section of its name (`spec/llm.md` §5.2)."""

    providers: dict[str, ChatRoute] = msgspec.field(default_factory=dict)
    """The routes, by the name that sessions call them by; none for no routes."""

    def __post_init__(self) -> None:
        if not all(name.strip() for name in self.providers):
            raise ValueError("a route of providers has no name")


sections = {SECTION: Config}


def apply(ctx: Context, config: Config) -> None:
    """Serve the routes. A call uses its route as it was when it was prepared, from start to end."""
    adapter = OpenAiAdapter({}, ctx.use(HTTP), ContextKeys(ctx), catalogue=lambda: ctx.get(MODEL_CATALOGUE))
    registry = ctx.use(LLM)
    registry.register_model_discovery(SECTION, adapter.list_served_models)
    listed = registry.register_configurable_providers(())
    handle: RouteHandle | None = None
    hidden: set[str] = set()

    def register(before: Mapping[str, RouteSettings]) -> None:
        nonlocal handle
        if handle is None:
            if adapter.routes:
                handle = registry.register_adapter(list(adapter.routes), adapter)
        elif _registered(before) != _registered(adapter.routes):
            handle.replace(list(adapter.routes))
        listed.replace([_listed(settings) for settings in adapter.routes.values()])

    def serve(now: Config) -> None:
        before, adapter.routes = adapter.routes, routes_of(now, adapter.routes)
        register(before)
        for route in now.providers.values():
            if route.api_key_env is not None and route.api_key_env not in hidden:
                hidden.add(route.api_key_env)
                hide_key(ctx, route.api_key_env)

    def judge(now: Config) -> None:
        for name in now.providers:
            if name not in adapter.routes and registry.owner_of(name) is not None:
                raise ValueError(f"providers: another row serves the route {name} already")

    serve(config)
    install_settings_section(ctx, SECTION, Config, config, validate=judge, changed=serve)


def routes_of(config: Config, before: Mapping[str, RouteSettings]) -> dict[str, RouteSettings]:
    """The state of each route: the same object where nothing about it has changed."""
    made = {}
    for name, route in config.providers.items():
        known = before.get(name)
        made[name] = known if known is not None and known.route == route else RouteSettings(name, route)
    return made


def _listed(settings: RouteSettings) -> ConfigurableProvider:
    return ConfigurableProvider(
        provider=settings.name,
        display_name=settings.display_name,
        settings_ns=SECTION,
        settings_path=("providers", settings.name),
    )


def _registered(routes: Mapping[str, RouteSettings]) -> dict[str, object]:
    """What the registry holds of the routes."""
    return {name: (settings.display_name, settings.policy) for name, settings in routes.items()}
