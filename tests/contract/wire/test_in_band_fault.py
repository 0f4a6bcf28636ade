"""A fault that is told inside a stream which began well: the attempt has failed, whatever came before."""

import pytest

from dsh.session.chunk import BlockEnd
from dsh.testing.mock_server.part import Call, End, Fault, FaultKind, Finish, Opening, Part, Text
from tests.aio import aio
from tests.contract.wire.outcomes import failures
from tests.contract.wire.wires import Wire, in_memory, over_wires

BEFORE: dict[str, list[Part]] = {
    "nothing": [],
    "the opening": [Opening()],
    "half of a text": [Opening(), Text("half")],
    "a whole call": [Opening(), Call("c1", "bash", ('{"command": "touch early"}',))],
    "all but the end": [Opening(), Text("all of it"), Finish()],
}


@over_wires
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("rate_limit", "RATE_LIMIT"), ("overloaded", "SERVER"), ("server_error", "SERVER"),
        ("quota_exceeded", "QUOTA"), ("context_overflow", "CONTEXT_WINDOW_EXCEEDED"),
        ("auth_error", "AUTH"), ("invalid_request", "INVALID_REQUEST"),
    ],
)  # fmt: skip
@aio
async def test_a_fault_within_the_stream_fails_the_attempt_with_the_providers_words(
    wire: Wire, before: str, kind: FaultKind, code: str
) -> None:
    words = {
        "quota_exceeded": "You exceeded your current quota",
        "context_overflow": "prompt is too long: 9 tokens > 8",
    }
    parts = [*BEFORE[before], Fault(kind, words.get(kind, "the providers words"))]
    async with in_memory(wire, wire.plan(parts), wire.plan([*parts, Finish(), End()])) as line:
        for _ in range(2):
            reply = await line.ask()

            assert (reply.kind, reply.code) == ("error", code)
            assert words.get(kind, "the providers words") in reply.failure["message"]


@over_wires
@pytest.mark.parametrize(
    "payload", [b"overloaded", b'"overloaded"', b'{"message":"overloaded"}', b'{"error":"overloaded"}']
)
@aio
async def test_an_error_event_of_any_form_fails_the_attempt(wire: Wire, payload: bytes) -> None:
    plan = wire.plan([Opening(), Text("half"), b"event: error\ndata: " + payload + b"\n\n"])
    async with in_memory(wire, plan) as line:
        reply = await line.ask()

        assert (reply.kind, reply.code) == ("error", "SERVER")
        assert "overloaded" in reply.failure["message"]


@over_wires
@pytest.mark.parametrize(
    "payload", [b"{not-json", b"null", b"7", b'"x"', b"[]", b'{"choices":[null]', b"\xff"]
)
@aio
async def test_an_event_that_cannot_be_read_fails_the_attempt(wire: Wire, payload: bytes) -> None:
    plan = wire.plan([Opening(), Text("half"), b"data: " + payload + b"\n\n", Finish(), End()])
    async with in_memory(wire, plan) as line:
        assert (await line.ask()).code == "MALFORMED_RESPONSE"


@over_wires
@aio
async def test_json_of_a_wrong_shape_fails_the_attempt(wire: Wire) -> None:
    plan = wire.plan([Opening(), Text("half"), wire.dialect.malformed, Finish(), End()])
    async with in_memory(wire, plan) as line:
        assert (await line.ask()).code == "MALFORMED_RESPONSE"


@over_wires
@aio
async def test_a_reason_to_stop_that_is_no_end_is_a_failure_with_closed_blocks(wire: Wire) -> None:
    async with in_memory(
        wire, wire.plan([Opening(), Text("a page"), Finish(reason="refusal"), End()])
    ) as line:
        reply = await line.ask()

        assert (reply.kind, reply.code) == ("error", failures(wire)["content_filter"])
        assert reply.text == "a page"
        assert [type(chunk) for chunk in reply.chunks].count(BlockEnd) == 1


@over_wires
@aio
async def test_a_reason_nobody_knows_is_a_failure_by_its_name(wire: Wire) -> None:
    async with in_memory(wire, wire.plan([Opening(), Text("x"), Finish(reason="brand new"), End()])) as line:
        assert (await line.ask()).code == "BRAND_NEW"
