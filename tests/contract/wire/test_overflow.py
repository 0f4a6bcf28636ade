"""A history that does not fit: told by a refusal, or by a success whose own figures deny it."""

import pytest

from dsh.testing.mock_server.part import Text, Usage, whole
from tests.aio import aio
from tests.contract.wire.wires import ANTHROPIC_WIRE, DEEPSEEK_WIRE, Wire, in_memory, over_wires

WINDOW = 1000


@over_wires
@aio
async def test_the_servers_own_refusal_is_a_full_window(wire: Wire) -> None:
    async with in_memory(wire, wire.error("context_overflow")) as line:
        reply = await line.ask()

        assert reply.code == "CONTEXT_WINDOW_EXCEEDED"
        assert reply.failure["status"] == 400


@over_wires
@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 131072 tokens. However, you requested 140000 tokens.",
        "prompt is too long: 210000 tokens > 200000 maximum",
        "Your input exceeds the context window of this model",
        "context_length_exceeded",
    ],
)
@aio
async def test_the_wording_of_other_servers_is_known_on_every_wire(wire: Wire, words: str) -> None:
    async with in_memory(wire, wire.error("invalid_request", words), wire.error("too_large", words)) as line:
        assert (await line.ask()).code == "CONTEXT_WINDOW_EXCEEDED"
        assert (await line.ask()).code == "INVALID_REQUEST", "a body that is too large is another matter"


@over_wires
@pytest.mark.parametrize(
    ("usage", "is_full"),
    [
        (Usage(uncached=WINDOW + 1, cache_read=0, output=1), True),
        (Usage(uncached=1, cache_read=WINDOW, output=1), True),
        (Usage(uncached=WINDOW - 1, cache_read=0, output=1), False),
    ],
)
@aio
async def test_a_success_that_used_more_than_the_window_is_none(
    wire: Wire, usage: Usage, is_full: bool
) -> None:
    plan = wire.plan(whole(Text("something"), usage=usage))
    async with in_memory(wire, plan, models=[{"id": "m", "contextWindow": WINDOW}]) as line:
        reply = await line.ask()

        if is_full and wire is not DEEPSEEK_WIRE:
            assert reply.code == "CONTEXT_WINDOW_EXCEEDED"
        else:
            assert (reply.kind, reply.text) == ("stop", "something")


@over_wires
@aio
async def test_a_window_that_fills_up_in_the_midst_of_a_reply_is_told_as_far_as_the_wire_can(
    wire: Wire,
) -> None:
    async with in_memory(wire, wire.plan(whole(Text("half"), reason="overflow"))) as line:
        reply = await line.ask()

        expected = ("error", "CONTEXT_WINDOW_EXCEEDED") if wire is ANTHROPIC_WIRE else ("max-tokens", "")
        assert (reply.kind, reply.code) == expected
