"""However a body is cut on its way, the reply is the same: every cut in two, each byte alone, 200 seeded."""

import random

import pytest

from dsh.testing.mock_server.part import Call, Part, Reasoning, Text, whole
from dsh.testing.mock_server.plan import Plan
from tests.aio import aio
from tests.contract.wire.memory_http import in_pieces
from tests.contract.wire.wires import Reply, Wire, in_memory, over_wires

RECORDED: list[Part] = whole(
    Reasoning("hm "),
    Reasoning("ünd 🏷"),
    Text("héllo "),
    Text("한국어\u2028"),
    Call("c1", "read", ('{"path": "', 'ä.txt"}')),
    Call("c2", "bash", ('{"command"', ': "ls"}')),
    reason="tool-calls",
)
LINE_ENDS = {"LF": b"\n", "CRLF": b"\r\n", "CR": b"\r"}


def recorded(wire: Wire, end: str) -> Plan:
    body = wire.plan(RECORDED).sent()
    return Plan(steps=(body.replace(b"\n", LINE_ENDS[end]),))


def is_right(reply: Reply) -> bool:
    return (
        reply.reasoning == "hm ünd 🏷"
        and reply.text == "héllo 한국어\u2028"
        and reply.calls == [("c1", "read", '{"path": "ä.txt"}'), ("c2", "bash", '{"command": "ls"}')]
        and reply.kind == "tool-calls"
        and reply.usage is not None
    )


@over_wires
@pytest.mark.parametrize("end", LINE_ENDS)
@aio
async def test_every_cut_in_two_gives_the_same_reply(wire: Wire, end: str) -> None:
    plan = recorded(wire, end)
    body, borders = plan.sent(), set(LINE_ENDS[end])
    # where no line ends, the cut is the same whatever lines end with
    cuts = [at for at in range(1, len(body)) if end == "LF" or borders & {*body[at - 1 : at + 1]}]
    async with in_memory(wire, plan, *(in_pieces(plan, [at]) for at in cuts)) as line:
        whole_reply = await line.ask()
        assert is_right(whole_reply)
        for at in cuts:
            assert await line.ask() == whole_reply, f"cut at byte {at}"


@over_wires
@pytest.mark.parametrize("end", LINE_ENDS)
@aio
async def test_many_cuts_at_once_give_the_same_reply(wire: Wire, end: str) -> None:
    plan, rng = recorded(wire, end), random.Random(46)
    size = len(plan.sent())
    cuts = [range(1, size), *(rng.sample(range(1, size), rng.randint(2, 60)) for _ in range(200))]
    async with in_memory(wire, plan, *(in_pieces(plan, each) for each in cuts)) as line:
        whole_reply = await line.ask()
        assert is_right(whole_reply)
        for number, each in enumerate(cuts):
            assert await line.ask() == whole_reply, f"run {number}: cut at {sorted(each)}"


@over_wires
@aio
async def test_a_byte_order_mark_in_front_changes_nothing(wire: Wire) -> None:
    plan = Plan(steps=(b"\xef\xbb\xbf" + recorded(wire, "LF").sent(),))
    async with in_memory(wire, plan, in_pieces(plan, [1]), in_pieces(plan, [2])) as line:
        assert all([is_right(await line.ask()) for _ in range(3)])


@over_wires
@aio
async def test_a_field_without_its_space_and_fields_nobody_knows_change_nothing(wire: Wire) -> None:
    body = recorded(wire, "LF").sent()
    plan = Plan(steps=(body.replace(b"data: ", b"id: 7\nretry: 10\ndata:"),))
    async with in_memory(wire, plan) as line:
        assert is_right(await line.ask())
