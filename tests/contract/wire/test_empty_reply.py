"""A reply without anything in it has failed, unless it says why there is nothing."""

import pytest

from dsh.session.chunk import Finish as FinishChunk
from dsh.session.chunk import UsageChunk
from dsh.testing.mock_server.part import Reasoning, Text, Usage, whole
from dsh.testing.mock_server.plan import Plan
from tests.aio import aio
from tests.contract.wire.wires import DEEPSEEK_WIRE, Wire, in_memory, over_wires


@over_wires
@pytest.mark.parametrize("reason", ["stop", "tool-calls"])
@aio
async def test_a_reply_of_nothing_is_a_failure_that_may_pass(wire: Wire, reason: str) -> None:
    async with in_memory(wire, wire.plan(whole(reason=reason))) as line:
        reply = await line.ask()

        assert (reply.kind, reply.code) == ("error", "EMPTY_RESPONSE")
        assert reply.usage is not None, "what it cost is told all the same"
        kinds = [type(chunk) for chunk in reply.chunks]
        assert kinds == [UsageChunk, FinishChunk]


@over_wires
@aio
async def test_deltas_without_text_open_no_block(wire: Wire) -> None:
    silent = [] if wire.signs_reasoning else [Reasoning("")]  # signed reasoning may have no words
    async with in_memory(wire, wire.plan(whole(*silent, Text("")))) as line:
        reply = await line.ask()

        assert (reply.blocks, reply.code) == ([], "EMPTY_RESPONSE")


@over_wires
@aio
async def test_an_answer_without_a_body_is_an_empty_reply(wire: Wire) -> None:
    async with in_memory(wire, Plan(status=204, headers={})) as line:
        assert (await line.ask()).code == "EMPTY_RESPONSE"


@over_wires
@aio
async def test_a_body_of_no_bytes_is_a_closed_stream(wire: Wire) -> None:
    async with in_memory(wire, Plan()) as line:
        assert (await line.ask()).code == "STREAM_CLOSED"


@over_wires
@aio
async def test_reasoning_alone_is_an_answer(wire: Wire) -> None:
    async with in_memory(wire, wire.plan(whole(Reasoning("hm")))) as line:
        reply = await line.ask()

        assert (reply.kind, reply.reasoning, reply.text) == ("stop", "hm", "")


@over_wires
@aio
async def test_white_space_is_an_answer(wire: Wire) -> None:
    async with in_memory(wire, wire.plan(whole(Text(" \n")))) as line:
        assert (await line.ask()).text == " \n"


@over_wires
@aio
async def test_a_limit_before_the_first_word_is_a_full_window_where_servers_say_it_so(wire: Wire) -> None:
    async with in_memory(wire, wire.plan(whole(reason="max-tokens", usage=Usage(output=0)))) as line:
        reply = await line.ask()

        if wire is DEEPSEEK_WIRE:
            assert (reply.kind, reply.blocks) == ("max-tokens", [])
        else:
            assert reply.code == "CONTEXT_WINDOW_EXCEEDED"
