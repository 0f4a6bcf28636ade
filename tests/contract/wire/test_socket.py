"""The contract seen from the server's side of a real connection: who hangs up, and what is used again."""

import asyncio

import pytest

from dsh.kernel import CancelToken
from dsh.llm.stream import close_stream
from dsh.session.chunk import TextDelta
from dsh.testing.mock_server import MockModelServer, MockOptions
from tests.aio import aio
from tests.contract.wire.wires import Wire, over_wires, served

SLOW = MockOptions(chunk_size=1, chunk_delay_ms=5_000)


async def outcome(server: MockModelServer) -> str | None:
    """How the server's last exchange ended, once it has noticed."""
    async with asyncio.timeout(30):
        while server.requests[-1].outcome is None:
            await asyncio.sleep(0.005)
    return server.requests[-1].outcome


@over_wires
@aio
async def test_sequential_requests_share_one_connection_whatever_they_end_with(wire: Wire) -> None:
    script = (
        "success",
        "tool_call_success",
        "rate_limit",
        "content_filter",
        "max_tokens",
        "auth_error",
        "success",
    )
    async with served(wire, *script) as (line, server):
        for _ in script:
            await line.ask()

        assert len(server.requests) == len(script)
        assert server.connections == 1


@over_wires
@pytest.mark.parametrize(
    "behaviour", ["partial_disconnect", "partial_eof", "malformed_json", "connection_reset"]
)
@aio
async def test_a_broken_connection_is_no_hindrance_to_the_next_request(wire: Wire, behaviour: str) -> None:
    async with served(wire, behaviour, "success", options=MockOptions(disconnect_delay_ms=1)) as (line, _):
        assert (await line.ask()).kind == "error"
        assert (await line.ask()).kind == "stop"


@over_wires
@pytest.mark.parametrize(("behaviour", "told"), [("stall", "stalled"), ("slow_success", "client_closed")])
@aio
async def test_a_cancelled_request_hangs_up(wire: Wire, behaviour: str, told: str) -> None:
    signal = CancelToken()
    async with served(wire, behaviour, "success", options=SLOW) as (line, server):
        asyncio.get_running_loop().call_later(0.05, signal.cancel, {"kind": "user"})
        reply = await line.ask(signal=signal)

        assert (reply.kind, reply.code) == ("aborted", "ABORTED")
        assert await outcome(server) == told
        assert (await line.ask()).kind == "stop", "and the next one is served"


@over_wires
@aio
async def test_a_reader_that_stops_early_hangs_up(wire: Wire) -> None:
    async with served(wire, "slow_success", options=SLOW) as (line, server):
        chunks = line.stream()
        async for chunk in chunks:
            if isinstance(chunk, TextDelta):
                break
        await close_stream(chunks)

        assert await outcome(server) == "client_closed"


@over_wires
@aio
async def test_an_idle_limit_hangs_up(wire: Wire) -> None:
    async with served(wire, "stall", row={"streamIdleTimeoutMs": 50}) as (line, server):
        assert (await line.ask()).code == "TIMEOUT"
        assert await outcome(server) == "stalled"


@over_wires
@aio
async def test_requests_side_by_side_do_not_mix(wire: Wire) -> None:
    async with served(wire, "slow_success", repeat_last=True, options=MockOptions(chunk_delay_ms=1)) as (
        line,
        server,
    ):
        replies = await asyncio.gather(*(line.ask() for _ in range(12)))

        assert {reply.text for reply in replies} == {MockOptions().success_text}
        assert len(server.requests) == 12
