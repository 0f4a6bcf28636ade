"""Events far larger than any buffer in between: nothing is cut, nothing grows out of proportion."""

import pytest

from dsh.testing.mock_server.part import Call, Reasoning, Text, whole
from dsh.testing.mock_server.plan import MockOptions
from tests.aio import aio
from tests.contract.wire.memory_http import in_pieces
from tests.contract.wire.wires import Wire, in_memory, over_wires, served

PAGE = "0123456789ä🏷 " * 100_000
"""About 1.9 MB of UTF-8, far beyond 64 KiB and 1 MiB."""


@over_wires
@aio
async def test_a_delta_of_megabytes_arrives_whole_in_pieces_of_a_sockets_size(wire: Wire) -> None:
    plan = wire.plan(whole(Reasoning(PAGE), Text(PAGE), Call("c1", "write", (PAGE,)), reason="tool-calls"))
    size = len(plan.sent())
    async with in_memory(wire, in_pieces(plan, range(65_536, size, 65_536))) as line:
        reply = await line.ask()

        assert (reply.reasoning, reply.text) == (PAGE, PAGE)
        assert reply.calls == [("c1", "write", PAGE)]


@over_wires
@aio
async def test_the_same_through_a_socket(wire: Wire) -> None:
    options = MockOptions(success_text=PAGE, chunk_size=len(PAGE))
    async with served(wire, "success", options=options) as (line, _):
        assert (await line.ask()).text == PAGE


@over_wires
@pytest.mark.parametrize("size", [64 * 1024])
@aio
async def test_a_long_comment_is_passed_over(wire: Wire, size: int) -> None:
    plan = wire.plan(whole(Text("yes")))
    comment = b":" + b"x" * size + b"\n\n"
    async with in_memory(
        wire, in_pieces(type(plan)(steps=(comment, plan.sent())), range(0, size, 4096))
    ) as line:
        assert (await line.ask()).text == "yes"
