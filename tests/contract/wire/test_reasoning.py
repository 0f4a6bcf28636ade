"""Reasoning: a block of its own, and back to the model that thought it."""

from typing import Any

from dsh.session.message import Message, user_message
from dsh.testing.mock_server.dialect.anthropic import signature
from dsh.testing.mock_server.part import Call, Reasoning, Text, whole
from tests.aio import aio
from tests.contract.wire.wires import Wire, in_memory, over_wires
from tests.llm.build import result

THOUGHT = whole(Reasoning("look "), Reasoning("first"), Call("c1", "read", ("{}",)), reason="tool-calls")


@over_wires
@aio
async def test_reasoning_and_text_are_one_block_each(wire: Wire) -> None:
    async with in_memory(
        wire, wire.plan(whole(Reasoning("a"), Reasoning("b"), Text("c"), Text("d")))
    ) as line:
        assert (await line.ask()).blocks == [
            {"type": "reasoning", "text": "ab"},
            {"type": "text", "text": "cd"},
        ]


@over_wires
@aio
async def test_reasoning_goes_back_verbatim_with_the_call_it_led_to(wire: Wire) -> None:
    async with in_memory(wire, wire.plan(THOUGHT), wire.plan(whole(Text("done")))) as line:
        reply = await line.ask()
        await line.ask(messages=(user_message("go"), reply.logged(wire), result("c1", "found")))
        sent: Any = line.sent[1].body["messages"][1]

        assert sent["role"] == "assistant"
        if wire.signs_reasoning:
            assert sent["content"][0] == {
                "type": "thinking", "thinking": "look first", "signature": signature("look first"),
            }  # fmt: skip
            assert sent["content"][1]["type"] == "tool_use"
        else:
            assert sent["reasoning_content"] == "look first"


@over_wires
@aio
async def test_a_message_without_reasoning_gets_none_of_another(wire: Wire) -> None:
    plain = wire.plan(whole(Call("c2", "read", ("{}",)), reason="tool-calls"))
    async with in_memory(wire, wire.plan(THOUGHT), plain, wire.plan(whole(Text("done")))) as line:
        history: tuple[Message, ...] = (
            user_message("go"),
            (await line.ask()).logged(wire),
            result("c1", "found"),
        )
        history = (*history, (await line.ask(messages=history)).logged(wire), result("c2", "too"))
        await line.ask(messages=history)
        [first, second] = [m for m in line.sent[2].body["messages"] if m["role"] == "assistant"]

        assert "look first" in repr(first)
        assert "look first" not in repr(second)


@over_wires
@aio
async def test_replay_state_is_the_providers_own_business_and_versioned(wire: Wire) -> None:
    async with in_memory(wire, wire.plan(THOUGHT)) as line:
        reply = await line.ask()

        if not wire.signs_reasoning:
            assert reply.replay_state is None
            return
        assert reply.replay_state is not None
        assert reply.replay_state["response"]["version"] == 1
        assert len(reply.replay_state["blocks"]) == len(reply.blocks)
