"""Servers that speak only the newer protocol, which has no handshake."""

import asyncio
from typing import Any

import pytest

from tests.aio import aio
from tests.plugins.mcp.kit import call, names, plain, serving, text, tool


def newer(*tools: Any, code: int = -32022, **plan: Any) -> dict[str, Any]:
    """A row whose server refuses the handshake with this code."""
    refuses = {"initialize": code, **plan.pop("refuses", {})}
    return plain(newer=True, refuses=refuses, tools=list(tools), **plan)


@pytest.mark.parametrize("code", [-32022, -32601])
@aio
async def test_a_server_without_a_handshake_is_asked_as_it_wants_to_be(code: int) -> None:
    tools = [tool("answer"), tool("odd", icons=3), {"name": 3}]
    async with serving(newer(*tools, code=code)) as ctx:
        assert names(ctx) == ["mcp__plain__answer", "mcp__plain__odd"]
        given = {"content": [{"type": "text", "text": "done"}, {"type": "new"}]}
        answer = text(await call(ctx, "mcp__plain__answer", result=given))
        assert answer.startswith('done\n[content of type "new" left out')


@aio
async def test_a_call_for_which_a_server_wants_more_from_a_person_fails() -> None:
    async with serving(newer(tool("answer"))) as ctx:
        wanted = {"resultType": "input_required", "inputRequests": {}, "requestState": "s"}
        result = await call(ctx, "mcp__plain__answer", result=wanted)

        assert result.is_error
        assert "it asks a person for more" in text(result)


@aio
async def test_a_server_that_tells_of_changes_is_listened_to() -> None:
    async with serving(newer(tool("change"), changed=[tool("new")])) as ctx:
        await call(ctx, "mcp__plain__change")
        async with asyncio.timeout(20):
            while names(ctx) != ["mcp__plain__new"]:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "plan", [{"refuses": {"subscriptions/listen": -32601}}, {"silent": ["subscriptions/listen"]}]
)
@aio
async def test_a_server_that_will_not_tell_of_changes_is_taken_as_it_is(
    plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dsh.plugins.mcp_client.connection.LISTEN_S", 0.2)
    async with serving(newer(tool("echo"), **plan)) as ctx:
        assert not (await call(ctx, "mcp__plain__echo")).is_error
