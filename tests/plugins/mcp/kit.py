"""Rows of MCP servers in a small tree of real rows, and calls of their tools."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from dsh.kernel import CancelToken, Context
from dsh.plugins import mcp_client, subprocess, tools
from dsh.tools.execution import ToolCall, ToolResult
from dsh.tools.registry import TOOLS, ToolRegistry

HERE = Path(__file__).parent


def plain(name: str = "plain", *, row: dict[str, Any] | None = None, **plan: Any) -> dict[str, Any]:
    """The config of a row whose server does what the plan says."""
    args = ["-I", "-S", str(HERE / "plain_server.py"), json.dumps(plan)]
    return {
        "transport": "stdio",
        "serverName": name,
        "command": sys.executable,
        "args": args,
        "reconnect": {"initialDelayMs": 10},
        **(row or {}),
    }


def tool(name: str, **more: Any) -> dict[str, Any]:
    """An entry of a server's list."""
    return {"name": name, "description": f"does {name}", "inputSchema": {"type": "object"}, **more}


@asynccontextmanager
async def tree() -> AsyncIterator[Context]:
    """A context with the rows that servers need."""
    ctx = Context()
    await ctx.plugin(subprocess)
    await ctx.plugin(tools)
    try:
        yield ctx
    finally:
        await ctx.dispose()


@asynccontextmanager
async def serving(*configs: dict[str, Any]) -> AsyncIterator[Context]:
    """The same with these servers, mounted side by side."""
    async with tree() as ctx:
        for fiber in [ctx.plugin(mcp_client, config) for config in configs]:
            await fiber
        yield ctx


def registry(ctx: Context) -> ToolRegistry:
    found = ctx.get(TOOLS)
    assert isinstance(found, ToolRegistry)
    return found


def names(ctx: Context) -> list[str]:
    return [schema.name for schema in registry(ctx).schemas()]


async def call(ctx: Context, name: str, token: CancelToken | None = None, /, **arguments: Any) -> ToolResult:
    return await registry(ctx).run(
        ToolCall(call_id="c1", name=name, arguments=arguments, signal=token or CancelToken())
    )


def text(result: ToolResult) -> str:
    return "".join(str(block["text"]) for block in result.content)
