"""A conversation that grows: each request begins with the messages of the one before, byte for byte."""

import json
from itertools import pairwise
from typing import Any

from dsh.llm.memo import Memo
from dsh.session.message import Message, user_message
from dsh.testing.mock_server.part import Call, Reasoning, Text, whole
from tests.aio import aio
from tests.contract.wire.wires import Wire, in_memory, over_wires
from tests.llm.build import result, schema

TURNS = 8


def unmarked(value: Any) -> Any:
    """Without the marks of a cache, which move; a text that had one may be a block or a string."""
    if isinstance(value, dict):
        return {key: unmarked(child) for key, child in value.items() if key != "cache_control"}
    return [unmarked(child) for child in value] if isinstance(value, list) else value


@over_wires
@aio
async def test_what_was_sent_is_sent_again_in_the_same_words(wire: Wire) -> None:
    plans = [
        wire.plan(whole(Reasoning(f"r{n}"), Call(f"c{n}", "read", ('{"b":1, "a":2}',)), reason="tool-calls"))
        if n % 2
        else wire.plan(whole(Text(f"answer {n}")))
        for n in range(TURNS)
    ]
    messages: list[Message] = []
    memo = Memo()
    async with in_memory(wire, *plans, *plans) as line:
        for n in range(TURNS):
            messages.append(user_message(f"question {n}"))
            reply = await line.ask(
                messages=tuple(messages), system="sys", tools=(schema("read"), schema("bash")), memo=memo
            )
            messages.append(reply.logged(wire))
            messages += [result(call_id, "found") for call_id, _, _ in reply.calls]
        sent = [unmarked(each.body) for each in line.sent]
        for before, after in pairwise(sent):
            old, new = before["messages"], after["messages"]
            assert json.dumps(new[: len(old)]) == json.dumps(old)
            rest = ("system", "tools", "model")
            assert [json.dumps(before.get(key)) for key in rest] == [
                json.dumps(after.get(key)) for key in rest
            ]
        without_memo = await line.ask(
            messages=tuple(messages), system="sys", tools=(schema("read"), schema("bash"))
        )
        with_memo = await line.ask(
            messages=tuple(messages), system="sys", tools=(schema("read"), schema("bash")), memo=memo
        )

        assert with_memo.code == without_memo.code == ""
        assert line.sent[-1].raw == line.sent[-2].raw, "what is remembered changes no byte"
