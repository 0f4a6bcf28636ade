"""Results of tools on their way to the model: whole, in order, and a failure told where the wire can."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from dsh.session.message import user_message
from dsh.testing.mock_server.part import Text, whole
from tests.aio import aio
from tests.contract.wire.wires import Wire, in_memory, over_wires
from tests.llm.build import assistant, result, tool_call


def leaves(value: Any) -> Iterator[str]:
    """Every text in a body."""
    if isinstance(value, str):
        yield value
    for child in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from leaves(child)


def results(wire: Wire, body: Any) -> list[dict[str, Any]]:
    """What carries the results in a body of this wire."""
    if not wire.tells_tool_errors:
        return [message for message in body["messages"] if message["role"] == "tool"]
    blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
    return [block for block in blocks if block["type"] == "tool_result"]


@over_wires
@aio
async def test_a_failed_call_is_told_as_one(wire: Wire) -> None:
    messages = (
        user_message("go"),
        assistant(tool_call("c1"), tool_call("c2")),
        result("c1", "no such file", is_error=True),
        result("c2", "fine"),
    )
    async with in_memory(wire, wire.plan(whole(Text("x")))) as line:
        await line.ask(messages=messages)
        first, second = results(wire, line.sent[0].body)

        assert "no such file" in list(leaves(first)) and "fine" in list(leaves(second))
        if wire.tells_tool_errors:
            assert first["is_error"] is True
            assert not second.get("is_error")


@over_wires
@pytest.mark.parametrize("text", ["", " ", "\n"])
@aio
async def test_a_result_without_words_crosses_as_a_literal(wire: Wire, text: str) -> None:
    messages = (user_message("go"), assistant(tool_call("c1")), result("c1", text))
    async with in_memory(wire, wire.plan(whole(Text("x")))) as line:
        await line.ask(messages=messages)
        [sent] = results(wire, line.sent[0].body)

        if text == "" or wire.tells_tool_errors:
            assert "(no output)" in list(leaves(sent))


@over_wires
@pytest.mark.parametrize("arguments", ['{"path": "ä"}', "", "{}", '{"broken', "[1]", "null"])
@aio
async def test_a_call_goes_back_as_an_object_or_as_it_was(wire: Wire, arguments: str) -> None:
    messages = (user_message("go"), assistant(tool_call("c1", "read", arguments)), result("c1", "x"))
    async with in_memory(wire, wire.plan(whole(Text("x")))) as line:
        await line.ask(messages=messages)
        body = line.sent[0].body
        call = body["messages"][1]

        if wire.tells_tool_errors:
            [block] = [b for b in call["content"] if b["type"] == "tool_use"]
            assert isinstance(block["input"], dict)
            if arguments.startswith('{"path'):
                assert block["input"] == json.loads(arguments)
        else:
            sent = call["tool_calls"][0]["function"]["arguments"]
            assert sent == arguments
