"""Odd but lawful bytes on both chat routes through the whole program: framing, tool calls, usage."""

import json
from typing import Any

import pytest

from tests.e2e.chat_route import DONE, It, calls, delta, event, finish, fragment, it
from tests.e2e.reply import text

__all__ = ["it"]

A = 'data:{"choices":[{"index":0,"delta":{"content":"A"}}]}\r\n\r\n'
B = 'event: message\nid: 7\nretry: 10\ndata: {"choices":\ndata: [{"index":0,"delta":{"content":"B"}}]}\n\n'
ALIVE = ": keep-alive\n\n"


@pytest.mark.parametrize(
    "raw",
    [
        [ALIVE, A, ALIVE, B, finish("stop"), DONE],
        [ALIVE + A + B + finish("stop") + DONE],
        [A + "dat", "a" + B.removeprefix("event: message\nid: 7\nretry: 10\ndata"), "data: [DONE]"],
        ["\ufeff", A, B[:60], B[60:], "data: [DONE]\n"],
        ["\ufeff" + A, B.replace("\n", "\r"), "data:[DONE]\r\r"],
    ],
)
def test_framing_that_the_format_allows_makes_no_difference(it: It, raw: list[str]) -> None:
    it.serve({"raw": raw})
    done = it.run()
    assert (done.code, done.stdout, done.stderr) == (0, "AB\n", "")
    chunks = [row["data"]["chunk"] for row in it.rows()[1:] if row["type"] == "assistant/chunk"]
    assert [chunk["text"] for chunk in chunks if chunk["type"] == "text-delta"] == ["A", "B"]


def bash(word: str) -> str:
    return json.dumps({"command": f"echo {word}", "description": "d"})


ONE, TWO = bash("one"), bash("two")
HALF = len(ONE) // 2
TOOL_CALLS = {
    "two indexes, interleaved": calls(
        [fragment(ONE[:HALF], name="bash", index=0, id="c1")],
        [fragment(TWO[:HALF], name="bash", index=1, id="c2")],
        [fragment(ONE[HALF:], index=0)],
        [fragment(TWO[HALF:], index=1)],
    ),
    "no index": calls(
        [fragment("", name="bash", id="c1")],
        [fragment(ONE)],
        [fragment("", name="bash", id="c2")],
        [fragment(TWO)],
    ),
    "index 0 for both": calls(
        [fragment(ONE, name="bash", index=0, id="c1")], [fragment(TWO, name="bash", index=0, id="c2")]
    ),
    "two entries in one delta": calls(
        [fragment(name="bash", index=0, id="c1"), fragment(ONE[:HALF], index=0)],
        [fragment(ONE[HALF:], index=0)],
    ),
    "index 0 and 3": calls(
        [fragment(ONE, name="bash", index=0, id="c1")], [fragment(TWO, name="bash", index=3, id="c2")]
    ),
    "a new index without an id": calls(
        [fragment("", name="bash", index=0, id="c1")],
        [fragment(ONE[:HALF], index=1)],
        [fragment(ONE[HALF:], index=2)],
    ),
    "whole in one delta": calls([fragment(ONE, name="bash", index=0, id="c1")]),
    "name after the id": calls([fragment("", index=0, id="c1")], [fragment(ONE, name="bash", index=0)]),
}
BOTH = ("two indexes, interleaved", "no index", "index 0 for both", "index 0 and 3")


def test_tool_calls_in_odd_pieces_are_the_calls_that_were_meant(it: It) -> None:
    it.serve(*TOOL_CALLS.values(), text("done"))
    assert it.run().stdout == "done\n"
    said = [row["data"]["message"] for row in it.rows()[1:] if row["type"] == "assistant/message"]
    made = [
        [(block["id"], block["name"], block["arguments"]) for block in message["content"]]
        for message in said[:-1]
    ]
    one, two = ("c1", "bash", ONE), ("c2", "bash", TWO)
    assert dict(zip(TOOL_CALLS, made, strict=True)) == {
        name: [one, two] if name in BOTH else [one] for name in TOOL_CALLS
    }


def test_a_call_without_arguments_is_one_with_none_and_a_piece_that_may_be_of_two_is_an_error(it: It) -> None:
    torn = calls(
        [fragment(ONE[:HALF], name="bash", index=0, id="c1")],
        [fragment(TWO[:HALF], name="bash", index=1, id="c2")],
        [fragment(ONE[HALF:], index=2)],
    )
    server = it.serve(torn, calls([fragment("", name="job_list", index=0, id="c3")]), text("done"))
    assert it.run().stdout == "done\n"
    rows = it.rows()
    assert [row["data"]["failure"]["code"] for row in rows if row["type"] == "llm/retry"] == [
        "MALFORMED_RESPONSE"
    ]
    [call] = server.requests[-1].body["messages"][-2]["tool_calls"]
    assert call["function"] == {"name": "job_list", "arguments": ""}
    assert "c1" not in json.dumps(server.requests[-1].body)


USAGE = {
    "prompt_tokens": 100,
    "prompt_cache_hit_tokens": 80,
    "prompt_cache_miss_tokens": 20,
    "completion_tokens": 50,
    "completion_tokens_details": {"reasoning_tokens": 30},
}
TOLD = {"inputTokens": 20, "outputTokens": 50, "cacheReadTokens": 80, "reasoningTokens": 30}
TRAILING = event(choices=[], usage=USAGE)
WORD = delta(content="ok")
NULL = event(choices=[{"index": 0, "delta": {"content": "ok"}}], usage=None)


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        ([WORD, finish("stop", usage=USAGE)], [TOLD]),
        ([WORD, finish("stop"), TRAILING], [TOLD]),
        ([NULL, finish("stop", usage=None), TRAILING], [TOLD]),
        ([WORD, finish("stop", usage=USAGE), TRAILING], [TOLD]),
        ([WORD, finish("stop")], []),
    ],
)
def test_usage_is_told_once_before_the_finish_wherever_it_stood(
    it: It, raw: list[str], told: list[dict[str, Any]]
) -> None:
    it.serve({"raw": [*raw, DONE]})
    assert it.run().stdout == "ok\n"
    rows = it.rows()[1:]
    chunks = [row["data"]["chunk"] for row in rows if row["type"] == "assistant/chunk"]
    assert [chunk["usage"] for chunk in chunks if chunk["type"] == "usage"] == told
    assert chunks[-1]["type"] == "finish"
    assert sum(row["type"] == "request/usage" for row in rows) == len(told)
