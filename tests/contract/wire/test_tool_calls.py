"""Tool calls: their arguments are the model's own text, whole or in fragments, one call or many."""

import json

import pytest

from dsh.session.chunk import ToolCallDelta
from dsh.testing.mock_server.part import Call, Reasoning, Text, whole
from tests.aio import aio
from tests.contract.wire.wires import Wire, in_memory, over_wires

ODD = '{"a" : 1,  "b":"ü\\u0041\\n🏷", "c":[1.50, 1e3], "a":2}'
"""Valid JSON that no serialiser would write again like this."""


@over_wires
@pytest.mark.parametrize("size", [1, 3, 1000])
@aio
async def test_arguments_are_kept_as_the_model_wrote_them(wire: Wire, size: int) -> None:
    fragments = tuple(ODD[at : at + size] for at in range(0, len(ODD), size))
    async with in_memory(wire, wire.plan(whole(Call("c1", "write", fragments), reason="tool-calls"))) as line:
        reply = await line.ask()

        assert reply.calls == [("c1", "write", ODD)]
        assert reply.kind == "tool-calls"
        deltas = [chunk for chunk in reply.chunks if isinstance(chunk, ToolCallDelta)]
        assert "".join(chunk.arguments_delta for chunk in deltas) == ODD


@over_wires
@pytest.mark.parametrize("fragments", [(), ("",), ("", "")])
@aio
async def test_a_call_without_arguments_is_a_call(wire: Wire, fragments: tuple[str, ...]) -> None:
    plan = wire.plan(whole(Call("c1", "list", fragments), reason="tool-calls"))
    async with in_memory(wire, plan) as line:
        [(call_id, name, arguments)] = (await line.ask()).calls

        assert (call_id, name) == ("c1", "list")
        assert json.loads(arguments or "{}") == {}


@over_wires
@pytest.mark.parametrize("broken", ['{"command": "ls', "not json", "[1]", '"text"', "null", '{"a":1}{"b":2}'])
@aio
async def test_arguments_that_are_no_object_pass_as_they_are(wire: Wire, broken: str) -> None:
    plan = wire.plan(whole(Call("c1", "bash", (broken,)), reason="tool-calls"))
    async with in_memory(wire, plan) as line:
        assert (await line.ask()).calls == [("c1", "bash", broken)]


@over_wires
@aio
async def test_parallel_calls_keep_their_order_ids_and_arguments(wire: Wire) -> None:
    calls = [Call(f"c{n}", f"tool{n}", ('{"n":', f"{n}}}")) for n in range(12)]
    plan = wire.plan(whole(Reasoning("hm"), Text("now:"), *calls, reason="tool-calls"))
    async with in_memory(wire, plan) as line:
        reply = await line.ask()

        assert reply.calls == [(f"c{n}", f"tool{n}", f'{{"n":{n}}}') for n in range(12)]
        assert [block["type"] for block in reply.blocks[:2]] == ["reasoning", "text"]


@over_wires
@aio
async def test_calls_with_the_same_id_get_ids_of_their_own(wire: Wire) -> None:
    calls = [Call("same", "read", ('{"n":1}',)), Call("same", "read", ('{"n":2}',))]
    async with in_memory(wire, wire.plan(whole(*calls, reason="tool-calls"))) as line:
        found = (await line.ask()).calls

        assert [arguments for _, _, arguments in found] == ['{"n":1}', '{"n":2}']
        assert len({call_id for call_id, _, _ in found}) == 2


@over_wires
@aio
async def test_a_call_without_an_id_gets_one(wire: Wire) -> None:
    async with in_memory(wire, wire.plan(whole(Call("", "read", ("{}",)), reason="tool-calls"))) as line:
        [(call_id, name, _)] = (await line.ask()).calls

        assert call_id and name == "read"


@over_wires
@aio
async def test_a_call_that_the_limit_cut_off_is_not_made(wire: Wire) -> None:
    plan = wire.plan(whole(Text("so: "), Call("c1", "bash", ('{"command": "rm -r',)), reason="max-tokens"))
    async with in_memory(wire, plan) as line:
        reply = await line.ask()

        assert (reply.kind, reply.text, reply.calls) == ("max-tokens", "so: ", [])


@over_wires
@aio
async def test_calls_count_whatever_the_finish_reason_says(wire: Wire) -> None:
    async with in_memory(wire, wire.plan(whole(Call("c1", "read", ("{}",)), reason="stop"))) as line:
        reply = await line.ask()

        assert reply.calls == [("c1", "read", "{}")]
        assert reply.kind in ("stop", "tool-calls")


@over_wires
@aio
async def test_text_after_a_call_is_kept(wire: Wire) -> None:
    plan = wire.plan(whole(Text("before "), Call("c1", "read", ("{}",)), Text("after"), reason="tool-calls"))
    async with in_memory(wire, plan) as line:
        reply = await line.ask()

        assert (reply.text, reply.calls) == ("before after", [("c1", "read", "{}")])
