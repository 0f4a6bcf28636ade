"""What a server sends to show that it lives: no part of the reply, and enough to be waited for."""

from collections.abc import Callable, Iterable

import pytest

from dsh.testing.mock_server.dialect.anthropic import PING
from dsh.testing.mock_server.part import Part, Reasoning, Text, whole
from dsh.testing.mock_server.plan import Pause, Plan, Step
from tests.aio import aio, aio_in_virtual_time
from tests.contract.wire.wires import ANTHROPIC_WIRE, Wire, in_memory, over_wires

COMMENT = b": keep-alive\n\n"
IDLE_MS = 10_000
REPLY: list[Part] = whole(Text("yes"), Text(" indeed"))


def quiet(wire: Wire) -> list[bytes]:
    """Everything by which this wire's servers say nothing."""
    if wire is ANTHROPIC_WIRE:
        return [COMMENT, PING, b'event: some_day\ndata: {"type":"some_day","index":0}\n\n', b"data:\n\n"]
    empty = b'data: {"choices":[{"index":0,"delta":{"content":""}}]}\n\n'
    return [COMMENT, empty, b'data: {"choices":[]}\n\n', b"data:\n\n", b"event: ping\ndata: {}\n\n"]


def between(steps: Iterable[Step], sign: bytes, pause: Callable[[], tuple[Step, ...]]) -> Plan:
    made: list[Step] = [sign]
    for step in steps:
        made += [step, *pause(), sign, *pause()]
    return Plan(steps=tuple(made[: -1 - len(pause())]))


@over_wires
@aio
async def test_signs_of_life_between_all_events_are_no_part_of_the_reply(wire: Wire) -> None:
    plans = [between(wire.plan(REPLY).steps, sign, tuple) for sign in quiet(wire)]
    async with in_memory(wire, wire.plan(REPLY), *plans) as line:
        plain = await line.ask()
        for sign in quiet(wire):
            assert (await line.ask()).chunks == plain.chunks, sign


@over_wires
@aio_in_virtual_time
async def test_a_sign_of_life_in_time_is_waited_for_however_long_it_goes_on(wire: Wire) -> None:
    def pause() -> tuple[Step, ...]:
        return (Pause(IDLE_MS * 0.9),)

    plans = [between(wire.plan(REPLY).steps, sign, pause) for sign in quiet(wire)]
    async with in_memory(wire, *plans, streamIdleTimeoutMs=IDLE_MS) as line:
        for sign in quiet(wire):
            assert (await line.ask()).text == "yes indeed", sign


@over_wires
@pytest.mark.parametrize(("limit", "after_ms"), [("totalTimeoutMs", 60_000), ("firstTokenTimeoutMs", 30_000)])
@aio_in_virtual_time
async def test_an_endless_keep_alive_is_ended_by_a_limit_on_the_whole(
    wire: Wire, limit: str, after_ms: int
) -> None:
    again: list[Step] = [COMMENT, Pause(5000)]
    steps = (*wire.plan(whole()).steps[:1], *again * 1000)
    async with in_memory(wire, Plan(steps=steps), streamIdleTimeoutMs=IDLE_MS, **{limit: after_ms}) as line:
        reply = await line.ask()

        assert reply.code == "TIMEOUT"
        assert f"{after_ms} ms" in reply.failure["message"]


@over_wires
@aio_in_virtual_time
async def test_the_limit_on_the_first_token_is_over_with_it(wire: Wire) -> None:
    plan = wire.plan([*whole(Reasoning("hm"))[:2], Pause(9000), *whole(Text("yes"))[1:]])
    async with in_memory(wire, plan, streamIdleTimeoutMs=IDLE_MS, firstTokenTimeoutMs=1000) as line:
        assert (await line.ask()).text == "yes"
