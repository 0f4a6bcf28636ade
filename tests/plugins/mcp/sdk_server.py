"""An MCP server made with the official SDK. Run by path, with `stdio`, or with `http`: it prints its port."""

import asyncio
import os
import socket
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

server = MCPServer("sdk")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
async def meet(name: str, other: str, folder: str) -> str:
    """Returns once both of two calls run."""
    Path(folder, name).touch()
    while not Path(folder, other).exists():
        await asyncio.sleep(0.01)
    return f"{name} met {other}"


@server.tool()
def add(a: int, b: int = 2) -> int:
    """Adds two numbers."""
    return a + b


@server.tool()
def fail() -> str:
    """Fails."""
    raise ToolError("it is broken")


@server.tool()
async def count(ctx: Context, times: int) -> str:
    """Reports progress."""
    for at in range(times):
        await ctx.report_progress(at, times, "counting")
    return "counted"


@server.tool()
async def grow(ctx: Context) -> str:
    """Adds a tool."""
    server.add_tool(lambda: "new", name="grown", description="was not there before")
    await ctx.session.send_tool_list_changed()
    return "grown"


@server.tool()
def environment(name: str) -> str:
    """Reads a variable."""
    return os.environ.get(name, "(unset)")


@server.tool()
async def block(path: str) -> str:
    """Waits until it is cancelled, and says so in a file."""
    try:
        await asyncio.sleep(600)
    finally:
        Path(path).write_text("cancelled")
    return "never"


def http() -> None:
    import uvicorn

    listening = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    app = server.streamable_http_app()
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])


if __name__ == "__main__":
    http() if sys.argv[1:] == ["http"] else server.run("stdio")
