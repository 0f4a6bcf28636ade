"""Row `llm-openai`: routes to servers that speak OpenAI's chat completions, as many as are configured."""

import msgspec

from dsh.capabilities.http import HTTP
from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
from dsh.kernel import Context
from dsh.llm.chat.openai import OpenAiAdapter
from dsh.llm.chat.route import ChatRoute
from dsh.llm.registry import LLM
from dsh.llm.route.row import RoutesConfig, serve_routes
from dsh.llm.transport.credential import ContextKeys

inject = [LLM, HTTP]
provide = ()


class Config(RoutesConfig, kw_only=True):
    """Options of the `llm-openai` row and of the settings section of its name (`spec/llm.md` §5.2)."""

    providers: dict[str, ChatRoute] = msgspec.field(default_factory=dict)
    """The routes, by the name that sessions call them by; none for no routes."""


sections = {"llm-openai": Config}


def apply(ctx: Context, config: Config) -> None:
    """Serve the routes."""
    adapter = OpenAiAdapter(ctx.use(HTTP), ContextKeys(ctx), catalogue=lambda: ctx.get(MODEL_CATALOGUE))
    serve_routes(ctx, config, adapter)
