"""Who asked may stop asking: at once, wherever the call stands, and nothing stays open."""

import asyncio

import pytest

from dsh.kernel import Cancelled, CancelToken
from dsh.session.chunk import TextDelta
from dsh.testing.mock_server.part import Opening, Part, Reasoning, Text, whole
from dsh.testing.mock_server.plan import Pause, Stall
from tests.aio import aio_in_virtual_time
from tests.contract.wire.wires import Wire, in_memory, over_wires

BEGUN: dict[str, list[Part]] = {
    "before the first byte": [],
    "in the reasoning": [Opening(), Reasoning("hm")],
    "in the text": [Opening(), Text("half")],
}


@over_wires
@aio_in_virtual_time
async def test_a_request_that_is_cancelled_already_is_not_sent(wire: Wire) -> None:
    signal = CancelToken()
    signal.cancel("why")
    async with in_memory(wire, wire.plan(whole(Text("x")))) as line:
        with pytest.raises(Cancelled):
            await line.ask(signal=signal)
        assert line.sent == []


@over_wires
@pytest.mark.parametrize("begun", BEGUN)
@aio_in_virtual_time
async def test_a_cancelled_request_ends_as_aborted_at_once(wire: Wire, begun: str) -> None:
    signal = CancelToken()
    async with in_memory(wire, wire.plan([*BEGUN[begun], Stall()])) as line:
        asyncio.get_running_loop().call_later(7, signal.cancel, {"kind": "user"})
        reply = await line.ask(signal=signal)

        assert (reply.kind, reply.code) == ("aborted", "ABORTED")
        assert asyncio.get_running_loop().time() == pytest.approx(7)
        assert line.http.open_streams == 0


@over_wires
@pytest.mark.parametrize(("after_s", "code"), [(4.999, "ABORTED"), (5.0, "TIMEOUT")])
@aio_in_virtual_time
async def test_what_came_first_gives_the_code_and_the_signal_the_kind_where_both_are_true(
    wire: Wire, after_s: float, code: str
) -> None:
    signal, loop = CancelToken(), asyncio.get_running_loop()
    async with in_memory(wire, wire.plan([Opening(), Stall()]), streamIdleTimeoutMs=5000) as line:
        asking = asyncio.ensure_future(line.ask(signal=signal))
        await asyncio.sleep(1)
        loop.call_at(after_s, signal.cancel, {"kind": "user"})  # armed later: due after the limit's timer
        reply = await asking

        assert (reply.kind, reply.code) == ("aborted", code)


@over_wires
@aio_in_virtual_time
async def test_a_reader_that_goes_away_closes_the_connection(wire: Wire) -> None:
    async with in_memory(wire, wire.plan([Opening(), Text("a"), Pause(1000), Text("b"), Stall()])) as line:
        chunks = line.stream()
        async for chunk in chunks:
            if isinstance(chunk, TextDelta):
                break
        assert line.http.open_streams == 1
        await chunks.aclose()  # type: ignore[attr-defined]

        assert line.http.open_streams == 0


@over_wires
@aio_in_virtual_time
async def test_a_cancelled_task_closes_the_connection(wire: Wire) -> None:
    async with in_memory(wire, wire.plan([Opening(), Text("a"), Stall()])) as line:
        asking = asyncio.ensure_future(line.ask())
        await asyncio.sleep(1)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

        assert line.http.open_streams == 0
