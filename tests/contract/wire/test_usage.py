"""What a reply used: each token counted once, told once, before the finish; wrong figures do no harm."""

from typing import Any

import pytest

from dsh.session.chunk import Finish as FinishChunk
from dsh.session.chunk import UsageChunk
from dsh.testing.mock_server.part import Text, Usage, whole
from tests.aio import aio
from tests.contract.wire.wires import ANTHROPIC_WIRE, Wire, in_memory, over_wires


@over_wires
@aio
async def test_input_cached_and_output_are_disjoint(wire: Wire) -> None:
    used = Usage(uncached=36, cache_read=64, output=50, reasoning=30)
    async with in_memory(wire, wire.plan(whole(Text("x"), usage=used))) as line:
        reply = await line.ask()

        assert reply.usage is not None
        told = dict(reply.usage)
        assert (told.pop("inputTokens"), told.pop("cacheReadTokens"), told.pop("outputTokens")) == (
            36,
            64,
            50,
        )
        assert told.pop("reasoningTokens", 30) == 30
        assert told.pop("cacheWriteTokens", 0) == 0
        assert told == {}


@over_wires
@aio
async def test_it_is_told_once_and_right_before_the_finish(wire: Wire) -> None:
    async with in_memory(wire, wire.plan(whole(Text("x")))) as line:
        chunks = (await line.ask()).chunks

        assert [type(chunk) for chunk in chunks].count(UsageChunk) == 1
        assert [type(chunk) for chunk in chunks[-2:]] == [UsageChunk, FinishChunk]


@over_wires
@pytest.mark.parametrize("reason", ["stop", "tool-calls", "max-tokens", "refusal"])
@aio
async def test_it_is_told_however_the_reply_ends(wire: Wire, reason: str) -> None:
    async with in_memory(wire, wire.plan(whole(Text("x"), reason=reason))) as line:
        reply = await line.ask()

        assert reply.usage is not None and reply.usage["outputTokens"] == 20


@over_wires
@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"prompt_tokens": -3, "completion_tokens": "x", "output_tokens": -1},
        {"prompt_tokens": 1e300, "output_tokens": 10**30},
        {"prompt_tokens": 10, "completion_tokens": 2.5, "output_tokens": 2.5},
        {"prompt_tokens": 10, "prompt_tokens_details": {"cached_tokens": 50}, "output_tokens": None},
        {"prompt_tokens": None, "completion_tokens": None, "prompt_tokens_details": None},
        [],
        "many",
        7,
    ],
)
@aio
async def test_wrong_figures_cost_neither_the_answer_nor_a_sum(wire: Wire, figures: Any) -> None:
    async with in_memory(wire, wire.plan(whole(Text("the answer"), usage=figures))) as line:
        reply = await line.ask()

        assert (reply.kind, reply.text) == ("stop", "the answer")
        for count in (reply.usage or {}).values():
            assert type(count) is int and count >= 0


@over_wires
@aio
async def test_without_figures_there_are_none(wire: Wire) -> None:
    async with in_memory(wire, wire.plan(whole(Text("x"), usage=None))) as line:
        usage = (await line.ask()).usage

        assert usage is None or wire is ANTHROPIC_WIRE, "Anthropic tells the input with the opening"
