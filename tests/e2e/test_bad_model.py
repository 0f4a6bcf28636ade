"""Models that misbehave, through the real program: calls that are none, and replies that lead nowhere."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dsh.testing.workspace import Workspace
from tests.e2e.hostile import Hostile
from tests.e2e.model import Model
from tests.e2e.reply import Reply, bash, text

DONE = text("done")
INVALID = "INVALID_ARGS"


@pytest.fixture
def it(space: Workspace, answering: Callable[..., Model]) -> Hostile:
    return Hostile(space, answering)


def called(*made: tuple[str | None, str, str]) -> Reply:
    """A reply with these calls: id, name, arguments."""
    return {"tools": [{"id": call_id, "name": name, "args": [raw]} for call_id, name, raw in made]}


def bash_call(**arguments: object) -> str:
    return json.dumps({"command": "true", "description": "d"} | arguments)


NO_JSON = "the text is not valid JSON: "
CALLS: list[tuple[str, str, str, str | None]] = [
    # the tool, its arguments, what the answer says, its code
    ("bash", '{"command": "a",\n  "b": oops}', f"{NO_JSON}Expecting value at line 2, column 8", INVALID),
    ("bash", '{"command": "echo hi', f"{NO_JSON}Unterminated string at line 1, column 13", INVALID),
    ("bash", "   ", f"{NO_JSON}Expecting value at line 1, column 4", INVALID),
    ("bash", '{"command": NaN}', f"{NO_JSON}NaN is not a JSON number", INVALID),
    ("bash", '{"a": ' + "[" * 20_000 + "]" * 20_000 + "}", f"{NO_JSON}it is nested too deeply", INVALID),
    ("bash", '{"a": 1' + "0" * 5000 + "}", f"{NO_JSON}an integer of 5001 digits is out of range", INVALID),
    ("bash", "[1]", '"arguments" must be an object', INVALID),
    ("bash", "null", '"arguments" must be an object', INVALID),
    ("bash", "", 'missing required property "command"', INVALID),
    (
        "bash",
        bash_call(command=5, description=[1]),
        '"command" must be a string; "description" must',
        INVALID,
    ),
    ("bash", bash_call(command="echo \0"), "must not hold a NUL character", None),
    ("bash", bash_call(command="echo hi", timeout=None), "hi\n", None),
    ("bash", bash_call(command="echo one")[:-1] + ', "command": "echo two"}', "two\n", None),
    ("bash", bash_call(command="echo \ud800"), "\ufffd\n", None),
    ("bash", bash_call()[:-1] + ', "x": ' + "[" * 600 + "]" * 600 + "}", "512 levels of nesting", None),
    ("bash", bash_call(command="true #" + "x" * 2_000_000), "too long for the system", None),
    ("nope", "{}", 'unknown tool "nope"', "UNKNOWN_TOOL"),
    ("", "{}", 'unknown tool ""', "UNKNOWN_TOOL"),
    ("a b\n\0", "{}", 'unknown tool "a b', "UNKNOWN_TOOL"),
    ("n" * 100_000, "{}", 'unknown tool "nnn', "UNKNOWN_TOOL"),
    ("run_code", "{}", 'unknown tool "run_code"', "UNKNOWN_TOOL"),
]


def test_each_bad_call_is_answered_with_what_is_wrong_and_where(it: Hostile) -> None:
    made = [(f"c{at}", name, raw) for at, (name, raw, _, _) in enumerate(CALLS)]
    done = it.run("", called(*made), DONE)
    assert (done.code, done.stdout) == (0, "done\n")
    for (found, code), (_, _, says, expected) in zip(it.results(), CALLS, strict=True):
        assert says in found
        assert code == expected
        assert len(found) < 1_000
    it.goes_on()


@pytest.mark.parametrize("ids", [["c1", "c1"], [None, None], ["", "c1"]])
def test_ids_that_are_repeated_or_missing_are_made_unique_in_the_next_request(
    it: Hostile, ids: list[str | None]
) -> None:
    raw = '{"command": "echo %s", "description": "d"}'
    done = it.run("", called(*((an_id, "bash", raw % at) for at, an_id in enumerate(ids))), DONE)
    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    assert [found for found, _ in it.results()] == ["0\n", "1\n"]
    sent = it.model.bodies()[-1]["messages"][-2:]
    assert [message["content"] for message in sent] == ["0\n", "1\n"]
    assert len({message["tool_call_id"] for message in sent}) == 2
    it.goes_on()


def test_three_hundred_calls_in_one_message_all_get_their_results(it: Hostile) -> None:
    for at in range(300):
        it.space.write(f"f{at}", f"text {at}")
    done = it.run(
        "", called(*((f"c{at}", "read", json.dumps({"file_path": f"f{at}"})) for at in range(300))), DONE
    )
    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    assert all(f"text {at}" in found for at, (found, _) in enumerate(it.results()))
    assert len(it.results()) == 300
    it.goes_on()


def test_a_model_that_repeats_one_call_for_ever_is_stopped(it: Hostile) -> None:
    done = it.run("", bash("echo again"))
    assert (done.code, done.stdout) == (5, "\n")
    assert "made the same call of bash 30 times in a row: its turn is ended" in done.stderr
    assert it.reason() == {"kind": "aborted", "reason": {"kind": "hook", "reason": "limit:repeat"}}
    it.goes_on()


FAST = """
- id: llm-deepseek
  merge: {retryPolicy: {maxRetries: 1, backoff: {initialDelayMs: 1, maxDelayMs: 1}}}
"""


@pytest.mark.parametrize(
    ("reply", "code", "out", "says", "end"),
    [
        ({"text": ["part"], "finish": "length"}, 1, "part\n", "cut off", {"kind": "max-tokens"}),
        ({**bash("touch ran"), "finish": "length"}, 1, "\n", "cut off", {"kind": "max-tokens"}),
        ({"text": []}, 1, "\n", "EMPTY_RESPONSE", "EMPTY_RESPONSE"),
        ({"text": [], "usage": None}, 1, "\n", "EMPTY_RESPONSE", "EMPTY_RESPONSE"),
        ({"text": ["a"], "finish": "banana"}, 1, "\n", "model stopped: banana", "BANANA"),
        ({"reasoning": ["hm"]}, 0, "\n", "without an answer", {"kind": "completed"}),
        ({"text": [" \n"]}, 0, " \n\n", "without an answer", {"kind": "completed"}),
        ({"text": ["answer"], "finish": "tool_calls"}, 0, "answer\n", "", {"kind": "completed"}),
    ],
)
def test_a_reply_that_leads_nowhere_ends_the_turn_and_says_so(
    it: Hostile, reply: Reply, code: int, out: str, says: str, end: Any
) -> None:
    done = it.run("", reply, rows=FAST)
    assert (done.code, done.stdout) == (code, out)
    assert len(done.errors) == (1 if says else 0) and says in done.stderr
    reason = it.reason()
    assert end == (reason["error"]["code"] if reason["kind"] == "error" else reason)
    assert not (it.space.work / "ran").exists(), "calls of a message that was cut off are not run"
    it.goes_on()


def test_calls_run_whatever_the_finish_says_and_text_before_and_after_them_is_kept(it: Hostile) -> None:
    mixed = {**bash("echo a"), "text": ["before"], "finish": "stop"}
    done = it.run("", mixed, DONE)
    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    assert it.results() == [("a\n", None)]
    assert it.model.bodies()[-1]["messages"][-2]["content"] == "before"
