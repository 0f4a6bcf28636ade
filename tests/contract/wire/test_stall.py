"""A server that falls silent: the call ends at the idle limit, on the clock, and the connection is closed."""

import asyncio

import pytest

from dsh.session.chunk import TextDelta
from dsh.testing.mock_server.part import Opening, Part, Reasoning, Text, whole
from dsh.testing.mock_server.plan import Pause, Stall
from tests.aio import aio_in_virtual_time
from tests.contract.wire.wires import Wire, in_memory, over_wires

IDLE_MS = 2000
BEGUN: dict[str, list[Part]] = {
    "after the headers": [],
    "after the opening": [Opening()],
    "in the reasoning": [Opening(), Reasoning("h"), Reasoning("m")],
    "in the text": [Opening(), Text("a"), Text("b"), Text("c")],
}


@over_wires
@pytest.mark.parametrize("begun", BEGUN)
@aio_in_virtual_time
async def test_silence_ends_the_attempt_at_the_limit_and_not_before(wire: Wire, begun: str) -> None:
    plan = wire.plan([*BEGUN[begun], Stall()])
    async with in_memory(wire, plan, streamIdleTimeoutMs=IDLE_MS) as line:
        before = asyncio.get_running_loop().time()
        reply = await line.ask()

        assert (reply.kind, reply.code) == ("error", "TIMEOUT")
        assert f"within {IDLE_MS} ms" in reply.failure["message"]
        assert asyncio.get_running_loop().time() - before == pytest.approx(IDLE_MS / 1000)
        assert line.http.open_streams == 0


@over_wires
@aio_in_virtual_time
async def test_pauses_below_the_limit_are_waited_for_whatever_they_add_up_to(wire: Wire) -> None:
    parts: list[Part] = []
    for part in whole(Text("a"), Text("b"), Text("c")):
        parts += [Pause(IDLE_MS - 1), part]
    async with in_memory(wire, wire.plan(parts), streamIdleTimeoutMs=IDLE_MS) as line:
        assert (await line.ask()).text == "abc"


@over_wires
@aio_in_virtual_time
async def test_the_time_that_the_reader_takes_does_not_count(wire: Wire) -> None:
    plan = wire.plan(whole(Text("a"), Text("b"), Text("c")))
    async with in_memory(wire, plan, streamIdleTimeoutMs=IDLE_MS) as line:
        words = []
        async for chunk in line.stream():
            await asyncio.sleep(5)
            if isinstance(chunk, TextDelta):
                words.append(chunk.text)
        assert words == ["a", "b", "c"]
