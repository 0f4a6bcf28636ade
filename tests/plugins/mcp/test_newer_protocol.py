"""Servers that speak only the newer protocol, which has no handshake."""

from tests.aio import aio
from tests.plugins.mcp.kit import call, names, plain, serving, text, tool

COMPLETE = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
DISCOVERED = {**COMPLETE, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}


@aio
async def test_a_server_without_a_handshake_is_asked_as_it_wants_to_be() -> None:
    answers = {
        "server/discover": DISCOVERED,
        "tools/list": {**COMPLETE, "tools": [tool("t"), tool("odd", icons=3), {"name": 3}]},
        "tools/call": {
            "resultType": "complete",
            "content": [{"type": "text", "text": "done"}, {"type": "new"}],
        },
    }
    async with serving(plain(refuses={"initialize": -32022}, answers=answers)) as ctx:
        assert names(ctx) == ["mcp__plain__odd", "mcp__plain__t"]
        assert text(await call(ctx, "mcp__plain__t")).startswith('done\n[content of type "new" left out')


@aio
async def test_a_call_for_which_a_server_wants_more_from_a_person_fails() -> None:
    wanted = {"resultType": "input_required", "inputRequests": {}, "requestState": "s"}
    answers = {
        "server/discover": DISCOVERED,
        "tools/list": {**COMPLETE, "tools": [tool("t")]},
        "tools/call": wanted,
    }
    async with serving(plain(refuses={"initialize": -32601}, answers=answers)) as ctx:
        result = await call(ctx, "mcp__plain__t")

        assert result.is_error
        assert "it asks a person for more" in text(result)
