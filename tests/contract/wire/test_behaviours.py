"""Every behaviour of the mock server, through the adapters: what comes out of each, on every wire."""

import json
from typing import Any

import pytest

from dsh.testing.mock_server import MockOptions
from dsh.testing.mock_server.behaviour import behaviours
from tests.aio import aio
from tests.contract.wire.outcomes import LIMITS, outcomes
from tests.contract.wire.wires import WIRES, Wire, over_wires, served

OPTIONS = MockOptions(chunk_delay_ms=1, disconnect_delay_ms=1, retry_after_ms=1000)
CALL = ("mock-call-1", OPTIONS.tool_name, OPTIONS.tool_arguments)

CASES = [
    pytest.param(wire, name, expected, id=f"{wire.name}-{name}")
    for wire in WIRES
    for name, expected in outcomes(wire).items()
]


@over_wires
def test_every_behaviour_is_tried(wire: Wire) -> None:
    assert set(outcomes(wire)) == set(behaviours(wire.dialect.name))


@pytest.mark.parametrize(("wire", "behaviour", "expected"), CASES)
@aio
async def test_a_behaviour_is_taken_for_what_it_is(wire: Wire, behaviour: str, expected: Any) -> None:
    async with served(wire, behaviour, options=OPTIONS, row=dict(LIMITS.get(behaviour, {}))) as (
        line,
        server,
    ):
        reply = await line.ask()

        assert server.refused == []
        assert len(server.requests) == 1
    if isinstance(expected, str):
        assert (reply.kind, reply.text, reply.calls) == ("stop", expected, [])
    elif isinstance(expected, int):
        assert reply.kind == ("stop" if behaviour == "tool_call_and_stop" else "tool-calls")
        made = [(name, json.loads(arguments)) for _, name, arguments in reply.calls]
        assert made == [(CALL[1], json.loads(CALL[2]))] * expected
        assert len({call_id for call_id, _, _ in reply.calls} - {""}) == expected
    elif isinstance(expected, tuple):
        assert reply.calls == [(*CALL[:2], *expected)]
    elif expected is None:
        assert (reply.kind, reply.text) == (
            "max-tokens",
            OPTIONS.partial_text if behaviour == "max_tokens" else "",
        )
    else:
        assert {reply.code} == expected
