"""Any text goes there and back; what is no text becomes U+FFFD and reaches neither the log nor a server."""

import json

import pytest

from dsh.session.message import user_message
from dsh.testing.mock_server.part import Call, Reasoning, Text, whole
from dsh.testing.mock_server.plan import Plan
from tests.aio import aio
from tests.contract.wire.wires import Wire, in_memory, over_wires

TEXTS = {
    "line separators": "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg\x1dh\x1ei",
    "emoji": "👩‍👩‍👧‍👦 🏷️ 🇰🇷",
    "right to left": "\u202eabc\u202c שלום",
    "combining": "e\u0301\u0323 ﷽",
    "beyond the first plane": "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 \U0010ffff",
    "noncharacters": "\ufffe\uffff\ufdd0",
    "control characters": "\x00\x01\x1b[31m\x7f\t\r\n",
    "a byte order mark": "\ufeffx",
    "things of the wire": 'data: [DONE]\n\nevent: x\n: y\r\n\\u0041 "{}"',
}


@over_wires
@pytest.mark.parametrize("name", TEXTS)
@aio
async def test_text_comes_in_as_it_was_said(wire: Wire, name: str) -> None:
    text = TEXTS[name]
    arguments = json.dumps({"text": text}, ensure_ascii=False)
    parts = whole(Reasoning(text), Text(text), Call("c1", "write", (arguments,)), reason="tool-calls")
    escaped = Plan(steps=(ascii_only(wire.plan(parts).sent()),))
    async with in_memory(wire, wire.plan(parts), escaped) as line:
        for _ in range(2):
            reply = await line.ask()
            assert (reply.reasoning, reply.text) == (text, text)
            assert reply.calls == [("c1", "write", arguments)]


def ascii_only(body: bytes) -> bytes:
    """The same JSON with everything beyond ASCII escaped, in halves where it takes two."""
    text = body.decode()
    made = (c if c.isascii() else json.dumps(c)[1:-1] for c in text)
    return "".join(made).encode()


@over_wires
@pytest.mark.parametrize("name", TEXTS)
@aio
async def test_text_goes_out_as_it_was_said(wire: Wire, name: str) -> None:
    text = "<" + TEXTS[name] + ">"
    async with in_memory(wire, wire.plan(whole(Text("x")))) as line:
        await line.ask(messages=(user_message(text),), system=text)
        [sent] = line.sent

        assert json.dumps(text)[1:-1] in json.dumps(sent.body["messages"])
        assert json.dumps(text)[1:-1] in json.dumps(sent.body.get("system", sent.body["messages"]))


@over_wires
@aio
async def test_half_a_character_comes_in_as_a_replacement(wire: Wire) -> None:
    parts = whole(Reasoning("@@"), Text("@@"), Call("c1", "w", ('"@@"',)), reason="tool-calls")
    body = wire.plan(parts).sent().replace(b"@@", b"x\\ud83cy")
    async with in_memory(wire, Plan(steps=(body,))) as line:
        reply = await line.ask()

        assert (reply.reasoning, reply.text) == ("x\ufffdy", "x\ufffdy")
        assert reply.calls == [("c1", "w", '"x\ufffdy"')]


@over_wires
@aio
async def test_bytes_that_are_no_utf8_never_become_text_that_cannot_be_written(wire: Wire) -> None:
    body = wire.plan(whole(Text("@@"))).sent()
    plans = [
        Plan(steps=(body.replace(b"@@", bad),)) for bad in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88")
    ]
    async with in_memory(wire, *plans) as line:
        for _ in plans:
            reply = await line.ask()
            assert (reply.kind, set(reply.text)) == ("stop", {"\ufffd"})


@over_wires
@aio
async def test_half_a_character_of_an_old_log_goes_out_as_a_replacement(wire: Wire) -> None:
    messages = (user_message("x\ud83cy"),)
    async with in_memory(wire, wire.plan(whole(Text("x")))) as line:
        await line.ask(messages=messages, system="s\udfff")

        assert "x\ufffdy" in json.dumps(line.sent[0].body, ensure_ascii=False)
        assert b"\\ud83c" not in line.sent[0].raw.lower()
