"""Calls of a server's tools: what goes to it, what the model reads, and how a call ends early."""

from tests.aio import aio
from tests.plugins.mcp.kit import call, names, plain, serving, text


@aio
async def test_a_tool_of_a_server_is_called_by_its_public_name() -> None:
    async with serving(plain("files")) as ctx:
        result = await call(ctx, "mcp__files__echo", a=[1, {"b": "é"}])

        assert text(result) == '{"arguments": {"a": [1, {"b": "\\u00e9"}]}, "tool": "echo"}'
        assert "mcp__files__env" in names(ctx)
