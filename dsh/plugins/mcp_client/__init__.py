"""Row `mcp-client`: the tools of one MCP server, as tools of the model's.

In no bundle: whoever wants a server adds a row for it. Needs the extra `mcp` (`docs/mcp.md`).
"""

from dsh.capabilities.recorded import is_given
from dsh.capabilities.subprocess import SUBPROCESS
from dsh.kernel import Context
from dsh.plugins.mcp_client.config import Config, check
from dsh.plugins.mcp_client.names import claim
from dsh.plugins.mcp_client.secrets import Secrets
from dsh.plugins.mcp_client.server import Server
from dsh.plugins.mcp_client.transport import HttpTransport, StdioTransport, Transport, require_libraries
from dsh.tools.registry import TOOLS

__all__ = ["Config", "apply", "inject", "provide"]

inject = [SUBPROCESS, TOOLS]
provide = ()


async def apply(ctx: Context, config: Config) -> None:
    if is_given(ctx):  # the tools of a replay are the recorded ones
        return
    name = config.server_name
    check(config)
    require_libraries(name)
    ctx.effect(lambda: claim(ctx, name), f"MCP server name {name}")

    secrets = Secrets(config)

    def warn(text: str) -> None:
        ctx.logger.warning("MCP server %s %s", name, secrets.hide(text))

    transport: Transport = (
        HttpTransport(config)
        if config.transport == "streamable-http"
        else StdioTransport(config, ctx.use(SUBPROCESS), secrets, warn)
    )
    await Server(ctx, config, transport, secrets, warn).start()
