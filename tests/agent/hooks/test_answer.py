"""What a hook's exit and its streams mean, and what several answers come to together."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.agent.hooks.answer import Answer, Decision, read_answer
from dsh.agent.hooks.dialect import Point
from dsh.agent.hooks.outcome import NOTHING, Outcome, merged
from dsh.session.value import json_equal

POINTS: tuple[Point, ...] = get_args(Point)


def said(point: Point = "PreToolUse", **fields: Any) -> Answer:
    return read_answer(point, 0, json.dumps(fields), "")


def nested(point: str = "PreToolUse", **fields: Any) -> dict[str, Any]:
    return {"hookEventName": point, **fields}


def test_silence_is_consent() -> None:
    assert read_answer("PreToolUse", 0, "", "") == Answer()
    assert read_answer("PreToolUse", 0, "all is well\n", "warming up\n") == Answer()


@pytest.mark.parametrize("point", POINTS)
def test_exit_2_blocks_with_standard_error_and_its_output_is_ignored(point: Point) -> None:
    approving = json.dumps({"decision": "approve", "systemMessage": "x"})

    assert read_answer(point, 2, approving, "\n  no rm here \n") == Answer(said="block", reason="no rm here")
    assert read_answer(point, 2, "", " \n") == Answer(said="block")


@pytest.mark.parametrize(
    ("code", "stderr", "problem"),
    [
        (1, "", "it ended with exit code 1"),
        (1, "Traceback\nKeyError: 'x'\n", "it ended with exit code 1: KeyError: 'x'"),
        (
            126,
            "bash: ./x: Permission denied",
            "the command is not executable (exit code 126): bash: ./x: Permission denied",
        ),
        (127, "", "the command was not found (exit code 127)"),
        (255, "", "it ended with exit code 255"),
    ],
)
def test_every_other_code_is_a_failure_that_decides_nothing(code: int, stderr: str, problem: str) -> None:
    answer = read_answer("PreToolUse", code, '{"decision": "block"}', stderr)

    assert answer == Answer(problem=problem)
    assert (answer.decision, answer.logged) == (None, "pass")


@pytest.mark.parametrize(
    ("word", "decision"), [("approve", "allow"), ("block", "deny"), ("allow", None), ("deny", None)]
)
def test_the_outer_decision_knows_two_words(word: str, decision: Decision | None) -> None:
    answer = said(decision=word, reason=" because ")

    assert (answer.decision, answer.reason) == (decision, "because")
    assert bool(answer.problem) is (decision is None)


@pytest.mark.parametrize(
    ("word", "decision"),
    [
        ("allow", "allow"),
        ("deny", "deny"),
        ("ask", "ask"),
        ("approve", None),
        ("block", None),
        ("defer", None),
    ],
)
def test_the_inner_decision_knows_three_others(word: str, decision: Decision | None) -> None:
    answer = said(hookSpecificOutput=nested(permissionDecision=word))

    assert answer.decision == decision
    assert bool(answer.problem) is (decision is None)


def test_the_inner_decision_and_reason_beat_the_outer_ones() -> None:
    inner = nested(permissionDecision="deny", permissionDecisionReason="inner")

    assert said(decision="approve", reason="outer", hookSpecificOutput=inner) == Answer(
        said="deny", reason="inner"
    )
    assert said(decision="block", reason="outer", hookSpecificOutput=nested()) == Answer(
        said="block", reason="outer"
    )


def test_output_for_another_event_is_ignored_but_the_outer_decision_counts() -> None:
    other = nested("PostToolUse", permissionDecision="allow", additionalContext="x")
    answer = said(decision="block", reason="outer", hookSpecificOutput=other)

    assert (answer.said, answer.reason, answer.context) == ("block", "outer", "")
    assert "PostToolUse" in answer.problem
    assert said(hookSpecificOutput=nested("PostToolUse", additionalContext="x")) == Answer()


@pytest.mark.parametrize(
    "fields",
    [
        {"decision": 1},
        {"decision": ["block"]},
        {"continue": "false"},
        {"continue": 0},
        {"hookSpecificOutput": "deny"},
        {"hookSpecificOutput": {"permissionDecision": "deny"}},
        {"hookSpecificOutput": nested(permissionDecision=None), "decision": {}},
    ],
)
def test_a_field_of_the_wrong_type_is_absent_and_told(fields: dict[str, Any]) -> None:
    answer = said(**fields)

    assert (answer.decision, answer.stop_reason) == (None, None)
    assert answer.problem


def test_texts_of_the_wrong_type_are_absent() -> None:
    answer = said(
        reason=3,
        stopReason=[],
        systemMessage={},
        hookSpecificOutput=nested(additionalContext=1, updatedInput=2),
    )

    assert answer == Answer()


@pytest.mark.parametrize("text", ["{", "{'decision': 'block'}", "{} {}", '{"a": ' * 100_000, '{"a": 1e'])
def test_what_starts_like_json_and_is_none_is_a_failure(text: str) -> None:
    answer = read_answer("SessionStart", 0, text, "")

    assert (answer.decision, answer.context) == (None, "")
    assert "no JSON" in answer.problem


@pytest.mark.parametrize("point", POINTS)
def test_plain_output_is_context_where_a_session_or_a_turn_begins(point: Point) -> None:
    is_context = point in ("SessionStart", "UserPromptSubmit")

    assert read_answer(point, 0, "\n the tests are in t/ \n", "").context == (
        "the tests are in t/" if is_context else ""
    )
    assert said(point, hookSpecificOutput=nested(point, additionalContext="told")).context == "told"


def test_a_hook_may_stop_the_agent() -> None:
    stop: dict[str, Any] = {"continue": False}
    answer = said(**stop, stopReason="out of budget", decision="block")

    assert (answer.stop_reason, answer.logged) == ("out of budget", "block")
    assert said(**stop).logged == "stop"
    assert said(**stop).stop_reason == ""
    assert said(**{**stop, "continue": True}, stopReason="no").stop_reason is None


def test_half_a_surrogate_pair_is_replaced_wherever_it_stands() -> None:
    raw = (
        '{"reason": "a\\ud83d", "decision": "block", "systemMessage": "b\\ude00", "hookSpecificOutput":'
        ' {"hookEventName": "PreToolUse", "additionalContext": "c\\ud99c",'
        ' "updatedInput": {"k\\ud83d": ["\\ud83d\\ude00", "\\udc00"]}}}'
    )
    answer = read_answer("PreToolUse", 0, raw, "")

    assert (answer.reason, answer.message, answer.context) == ("a\ufffd", "b\ufffd", "c\ufffd")
    assert json_equal(answer.updated_input, {"k\ufffd": ["😀", "\ufffd"]})


DEEP = {f"{depth} deep": '{"a":' * depth + "1" + "}" * depth for depth in (450, 520, 600, 900)}
NONE = {
    **DEEP,
    "NaN": '{"a": NaN}',
    "infinite": '{"a": 1e999}',
    "no safe integer": '{"a": 1' + "0" * 30 + "}",
    "half a pair, deep": '{"a": "\\ud800", "b": ' + "[" * 500 + "]" * 500 + "}",
}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("value", NONE.values(), ids=NONE)
def test_arguments_that_are_none_take_no_decision_away(point: Point, value: str) -> None:
    nested = f'{{"hookEventName": "{point}", "permissionDecision": "deny", "updatedInput": {value}}}'
    raw = f'{{"hookSpecificOutput": {nested}}}'

    answer = read_answer(point, 0, raw, "")

    assert answer.decision == "deny"
    assert answer.updated_input is None or not answer.problem


def test_terminal_control_reaches_nobody() -> None:
    raw = json.dumps({"reason": "\x1b[31mno\x1b[0m\x00", "systemMessage": "\x1b]0;t\x07m", "continue": False})
    answer = read_answer("Stop", 0, raw, "")

    assert (answer.reason, answer.message) == ("no␀", "m")


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "continue": st.booleans() | st.text(max_size=3),
        "stopReason": st.text(max_size=5) | st.integers(),
        "systemMessage": st.text(max_size=5) | st.none(),
        "decision": st.sampled_from(["approve", "block", "deny", 1, None]),
        "reason": st.text(max_size=5) | st.lists(st.integers(), max_size=1),
        "hookSpecificOutput": st.fixed_dictionaries(
            {"hookEventName": st.sampled_from([*POINTS, "X", 1])},
            optional={
                "permissionDecision": st.sampled_from(["allow", "deny", "ask", "no", None]),
                "additionalContext": st.text(max_size=5) | st.booleans(),
                "updatedInput": st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
            },
        )
        | st.text(max_size=3),
    },
)
OUTPUTS = FIELDS.map(json.dumps) | st.text(max_size=20) | st.text(max_size=20).map("{{{}".format)


@given(st.sampled_from(POINTS), st.integers(0, 255), OUTPUTS, st.text(max_size=20))
def test_any_ending_has_an_answer(point: Point, code: int, stdout: str, stderr: str) -> None:
    answer = read_answer(point, code, stdout, stderr)

    assert answer.logged in ("approve", "block", "allow", "deny", "ask", "stop", "pass")
    for text in (answer.reason, answer.context, answer.message, answer.problem):
        text.encode()
    if code not in (0, 2):
        assert answer.decision is None
        assert answer.problem


# -- several ---------------------------------------------------------------------------------------

ANSWERS = {
    word: Answer(said=word, reason=f"r-{word}") for word in ("deny", "block", "ask", "allow", "approve")
}


@given(st.lists(st.sampled_from([*ANSWERS.values(), Answer()]), max_size=5))
def test_deny_beats_ask_beats_allow_beats_nothing(answers: list[Answer]) -> None:
    outcome = merged(answers)

    decisions = {one.decision for one in answers}
    order: tuple[Decision, ...] = ("deny", "ask", "allow")
    winner = next((one for one in order if one in decisions), None)
    assert outcome.decision == winner
    reasons = [one.reason for one in answers if one.decision == winner]
    assert outcome.reason == ("\n\n".join(reasons) if winner in ("deny", "ask") else "")


def test_contexts_keep_their_order_and_the_first_wish_for_other_arguments_counts() -> None:
    answers = [
        Answer(context="one", updated_input={"a": 1}),
        Answer(),
        Answer(said="deny", context="two", updated_input={"a": 2}),
    ]

    assert merged(answers) == Outcome(decision="deny", contexts=("one", "two"), updated_input={"a": 1})
    assert merged([]) == merged([Answer()]) == NOTHING


def test_whoever_wants_to_stop_is_heard() -> None:
    assert merged([Answer(stop_reason="a"), Answer(), Answer(stop_reason="b")]).stop_reason == "a\n\nb"
    assert merged([Answer(stop_reason="")]).stop_reason == ""
