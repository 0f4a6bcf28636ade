"""A reply that ends before its end has failed, wherever it broke off; its blocks stay open."""

import pytest

from dsh.session.chunk import BlockEnd
from dsh.testing.mock_server.part import Call, End, Finish, Opening, Text, whole
from dsh.testing.mock_server.plan import Plan, Reset
from tests.aio import aio
from tests.contract.wire.wires import Wire, in_memory, over_wires

REPLY = whole(
    Text("half"), Text(" of it"), Call("c1", "bash", ('{"command":', ' "ls"}')), reason="tool-calls"
)


@over_wires
@aio
async def test_a_body_that_ends_too_early_at_any_byte_is_a_closed_stream(wire: Wire) -> None:
    body = wire.plan(REPLY).sent()
    is_over = len(body.rstrip(b"\n"))
    plans = [Plan(steps=(body[:stop],)) for stop in range(len(body) + 1)]
    async with in_memory(wire, *plans) as line:
        for stop in range(len(body) + 1):
            reply = await line.ask()
            if stop >= is_over:
                assert reply.kind == "tool-calls", f"the end after {stop} bytes lacks at most an empty line"
            else:
                assert reply.code == "STREAM_CLOSED", f"cut after {stop} of {len(body)} bytes"


@over_wires
@aio
async def test_a_connection_that_breaks_is_no_closed_stream(wire: Wire) -> None:
    steps = wire.plan([Opening(), Text("half")]).steps
    plans = [
        Plan(status=0),
        Plan(steps=(Reset(),)),
        Plan(steps=(*steps, Reset())),
        Plan(steps=(*wire.plan([Opening(), Text("half"), Finish()]).steps, Reset())),
    ]
    async with in_memory(wire, *plans) as line:
        assert [(await line.ask()).code for _ in plans] == ["TRANSPORT"] * 4


@over_wires
@aio
async def test_what_was_open_when_it_broke_stays_open(wire: Wire) -> None:
    async with in_memory(wire, wire.plan([Opening(), Text("half")])) as line:
        reply = await line.ask()

        assert reply.text == "half"
        assert not any(isinstance(chunk, BlockEnd) for chunk in reply.chunks)


@over_wires
@aio
async def test_a_finish_reason_without_the_end_mark_is_no_whole_reply(wire: Wire) -> None:
    async with in_memory(wire, wire.plan([Opening(), Text("all of it"), Finish()])) as line:
        assert (await line.ask()).code == "STREAM_CLOSED"


@over_wires
@pytest.mark.parametrize("junk", [b"data: x\n\n", b"\x00\xff", b"data: {not-json\n\n", b"\n\n\n"])
@aio
async def test_what_comes_after_the_end_mark_is_not_looked_at(wire: Wire, junk: bytes) -> None:
    plan = wire.plan(whole(Text("yes")))
    async with in_memory(wire, Plan(steps=(*plan.steps, junk)), Plan(steps=(plan.sent() + junk,))) as line:
        for _ in range(2):
            reply = await line.ask()
            assert (reply.text, reply.kind) == ("yes", "stop")


@over_wires
@aio
async def test_the_end_mark_alone_is_an_empty_reply(wire: Wire) -> None:
    async with in_memory(wire, wire.plan([Opening(), End()])) as line:
        assert (await line.ask()).code == "EMPTY_RESPONSE"
