"""Row `llm-anthropic`: routes to servers that speak Anthropic's Messages format, any number of them."""

import msgspec

from dsh.capabilities.http import HTTP
from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
from dsh.kernel import Context
from dsh.llm.anthropic.adapter import AnthropicAdapter
from dsh.llm.anthropic.route import AnthropicRoute
from dsh.llm.registry import LLM
from dsh.llm.route.row import RoutesConfig, serve_routes
from dsh.llm.transport.credential import ContextKeys

inject = [LLM, HTTP]
provide = ()


class Config(RoutesConfig, kw_only=True):
    """Options of the `llm-anthropic` row and of the settings section of its name (`spec/llm.md` §5.1)."""

    providers: dict[str, AnthropicRoute] = msgspec.field(default_factory=dict)
    """The routes, by the name that sessions call them by; none for no routes."""


sections = {"llm-anthropic": Config}


def apply(ctx: Context, config: Config) -> None:
    """Serve the routes."""
    adapter = AnthropicAdapter(ctx.use(HTTP), ContextKeys(ctx), catalogue=lambda: ctx.get(MODEL_CATALOGUE))
    serve_routes(ctx, config, adapter)
