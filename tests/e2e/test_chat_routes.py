"""Both chat-completions routes through the whole program: what a server sees, what is left in the log."""

import json
from itertools import pairwise
from typing import Any

import pytest

from dsh.testing.mock_server.strict.rules import Rules
from tests.e2e.chat_route import KEY, It, delta, event, it
from tests.e2e.provider import is_for_summary
from tests.e2e.reply import Reply, text
from tests.e2e.test_kill import RESUMER

__all__ = ["it"]


def thinks(number: int, *thought: str, tokens: int = 3000) -> Reply:
    """A reply that may think, and calls bash."""
    arguments = json.dumps({"command": f"yes lorem | head -n 400 # {number}", "description": "d"})
    reply: Reply = {
        "tools": [{"id": f"c{number}", "name": "bash", "args": [arguments]}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": 10},
    }
    return {**reply, "reasoning": list(thought)} if thought else reply


def test_reasoning_goes_back_verbatim_in_later_turns_after_a_summary_and_when_the_session_goes_on(
    it: It,
) -> None:
    server = it.serve(
        thinks(1, "", "look ", "first"),
        thinks(2),
        *(thinks(n, f"thought {n}") for n in range(3, 9)),
        thinks(9, "thought 9", tokens=17_000),
        text("## Goal: the gist"),
        text("all done"),
        thinks(10, "thought 10"),
        text("done again"),
        rules=Rules(demands_reasoning=True),
    )
    done = it.run()
    assert (done.code, done.stdout, done.stderr) == (0, "all done\n", "")
    session_id = it.rows()[0]["id"]
    it.space.write("resumer.py", RESUMER)
    again = it.run(
        "- {id: headless-runner, remove: true}",
        "- insert: [{id: resumer, name: ./resumer.py}]",
        f"- {{id: agent-loop, config: {{agents: [{{id: main, resumeSessionId: {session_id}, "
        f"provider: {it.route.name}, model: {it.route.model}}}]}}}}",
    )
    assert again.code == 0, again.stderr

    assert server.refused == []
    bodies = [request.body for request in server.requests]
    assert [is_for_summary(body) for body in bodies].count(True) == 1
    said = [message for message in bodies[2]["messages"] if message["role"] == "assistant"]
    assert [message.get("reasoning_content") for message in said] == ["look first", None]
    for body in (bodies[-3], bodies[-1]):  # behind the summary, and when the session has gone on
        calls = [message for message in body["messages"] if message.get("tool_calls")]
        assert calls
        for message in calls:
            number = int(message["tool_calls"][0]["id"][1:])
            assert message["reasoning_content"] == f"thought {number}"
    turns = [body for body in bodies if not is_for_summary(body)]
    breaks = [at for at, (before, now) in enumerate(pairwise(turns)) if not begins_with(now, before)]
    assert len(breaks) == 1, "the summary breaks the provider's cache once, and going on does not"
    assert len({json.dumps(body["tools"]) for body in turns}) == 1


def begins_with(body: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether the messages of a request begin with all those of another, byte for byte."""
    return json.dumps(body["messages"]).startswith(json.dumps(before["messages"]).removesuffix("]"))


ERROR = {"error": {"message": "Rate limit reached", "type": "rate_limit_error", "code": "429"}}
FAILED = event(**ERROR)
HALF = delta(content="half")


@pytest.mark.parametrize(
    ("raw", "code", "says"),
    [
        ([HALF, FAILED], "RATE_LIMIT", "Rate limit reached"),
        ([FAILED], "RATE_LIMIT", "Rate limit reached"),
        ([event(choices=[], **ERROR)], "RATE_LIMIT", "Rate limit reached"),
        ([HALF, "event: error\ndata: overloaded\n\n"], "SERVER", "overloaded"),
        ([json.dumps(ERROR)], "RATE_LIMIT", "Rate limit reached"),
        ([HALF, FAILED, "data: [DONE]\n\n"], "RATE_LIMIT", "Rate limit reached"),
    ],
)
def test_an_error_inside_a_stream_is_tried_again_and_never_an_answer(
    it: It, raw: list[str], code: str, says: str
) -> None:
    server = it.serve({"raw": raw}, repeat_last=True)
    done = it.run()
    assert (done.code, done.stdout) == (1, "\n")
    assert f"{code}: {says}" in done.stderr
    assert "half" not in done.stdout + done.stderr
    assert len(server.requests) == 3
    assert "assistant/message" not in {row["type"] for row in it.rows()[1:]}


LEAK = '<｜DSML｜function_calls>\n<｜DSML｜invoke name="bash">\n'


def test_a_leaked_call_is_not_executed_not_printed_and_tried_again(it: It) -> None:
    server = it.serve(text("Let me see.\n", LEAK), text("proper"))
    done = it.run()
    assert (done.code, done.stdout, done.stderr) == (0, "proper\n", "")
    assert "DSML" not in json.dumps(server.requests[1].body)
    retries = [row["data"]["failure"]["code"] for row in it.rows() if row["type"] == "llm/retry"]
    assert retries == ["MALFORMED_RESPONSE"]


def test_a_model_that_is_not_there_is_one_line_with_the_nearest_names_and_no_key(it: It) -> None:
    missing = {"status": 404, "body": {"error": {"message": "Model Not Exist"}}}
    it.serve(missing, models=(f"{it.route.model}-2", "other"))
    done = it.run()
    assert (done.code, done.stdout) == (1, "\n")
    [line] = done.errors
    assert f"route {it.route.name} has no model '{it.route.model}': Model Not Exist; nearest: " in line
    assert f"{it.route.model}-2" in line
    assert KEY not in line
