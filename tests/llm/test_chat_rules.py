"""What routes make of replies that servers end in different ways: no `[DONE]`, overflow without an error."""

from typing import Any

import pytest

from dsh.llm.chat.translator import ChatTranslator, ReplyRules
from dsh.llm.failure import LlmError
from dsh.session.chunk import Chunk, ReasoningDelta, TextDelta, UsageChunk
from tests.llm.build import PlainFailures, delta, reason, translate

LENIENT = ReplyRules(done_optional=True)
OVERFLOW = ReplyRules(detect_overflow=True, context_window=100)


def usage(prompt: int, completion: int, cached: int = 0) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


# -- reasoning under either name ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "deltas",
    [
        [{"reasoning_content": "a"}, {"reasoning_content": "b"}],
        [{"reasoning": "a"}, {"reasoning": "b"}],
        [{"reasoning_content": None, "reasoning": "a"}, {"reasoning_content": "b", "reasoning": None}],
        [{"reasoning_content": "a", "reasoning": "a"}, {"reasoning": "b", "reasoning_content": ""}],
    ],
)
def test_reasoning_is_read_under_either_name_and_once(deltas: list[dict[str, Any]]) -> None:
    chunks = translate(*(delta(**one) for one in deltas), delta("stop", content="c"))

    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningDelta)) == "ab"


@pytest.mark.parametrize("value", ["", None, {"effort": "high"}, [], 5, True])
def test_what_stands_in_the_place_of_reasoning_and_is_no_text_is_passed_over(value: Any) -> None:
    chunks = translate(delta("stop", content="c", reasoning=value))

    assert not any(isinstance(chunk, ReasoningDelta) for chunk in chunks)


# -- the end of a stream -------------------------------------------------------------------------------


def ends(rules: ReplyRules, *payloads: bytes, tail: bytes | None = None) -> tuple[bool, list[Chunk]]:
    translator, out = ChatTranslator(PlainFailures(), rules=rules), list[Chunk]()
    for payload in payloads:
        translator.push(b"", payload, out)
    return translator.is_whole(None if tail is None else (b"", tail), out), out


@pytest.mark.parametrize(
    ("payloads", "tail", "strict", "lenient"),
    [
        ([delta(content="a")], None, False, False),
        ([delta("stop", content="a")], None, False, True),
        ([delta(content="a")], b"[DONE]", True, True),
        ([delta(content="a")], delta("stop", content="b"), False, True),
        ([delta(content="a")], delta("stop", content="b")[:-3], False, False),
        ([delta("stop", content="a")], b'{"choi', False, True),
        ([], None, False, False),
    ],
)
def test_a_body_may_end_without_done_only_behind_a_finish_reason_and_where_that_is_allowed(
    payloads: list[bytes], tail: bytes | None, strict: bool, lenient: bool
) -> None:
    assert ends(ReplyRules(), *payloads, tail=tail)[0] is strict
    assert ends(LENIENT, *payloads, tail=tail)[0] is lenient


def test_the_last_event_counts_though_its_empty_line_is_missing() -> None:
    whole, out = ends(LENIENT, delta(content="a"), tail=delta("stop", content="b"))

    assert whole
    assert [chunk.text for chunk in out if isinstance(chunk, TextDelta)] == ["a", "b"]


def test_an_error_in_the_last_event_is_the_failure_either_way() -> None:
    for rules in (ReplyRules(), LENIENT):
        with pytest.raises(LlmError, match="busy"):
            ends(rules, delta("stop", content="a"), tail=b'{"error": {"message": "busy"}}')


def test_an_error_of_a_choice_is_the_failure() -> None:
    payload = (
        b'{"choices": [{"index": 0, "delta": {"content": ""}, "error": {"code": 502, "message": "gone"}}]}'
    )
    with pytest.raises(LlmError, match="gone") as caught:
        translate(delta(content="half"), payload)
    assert caught.value.code == "IN_BAND"


# -- overflow that looks like success ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (delta("stop", usage(101, 5), content="a"), "CONTEXT_WINDOW_EXCEEDED"),
        (delta("stop", usage(101, 5, cached=90), content="a"), "CONTEXT_WINDOW_EXCEEDED"),
        (delta("length", usage(99, 0)), "CONTEXT_WINDOW_EXCEEDED"),
        (delta("length", usage(9, 0)), "CONTEXT_WINDOW_EXCEEDED"),
        (delta("length"), "CONTEXT_WINDOW_EXCEEDED"),
        (delta("stop", usage(100, 5), content="a"), None),
        (delta("stop", usage(90, 50), content="a"), None),
        (delta("length", usage(99, 1), content="a"), None),
        (delta("length", usage(50, 40)), None),  # all of it went into reasoning that is not shown
        (delta("stop", content="a"), None),
    ],
)
def test_figures_that_say_that_the_request_was_too_long_are_an_overflow(
    payload: bytes, code: str | None
) -> None:
    if code is None:
        assert reason(translate(payload, rules=OVERFLOW))["kind"] in ("stop", "max-tokens")
        return
    failure = reason(translate(payload, rules=OVERFLOW))["failure"]
    assert failure["code"] == code
    beyond = "101 tokens, more than the model's window of 100"
    assert (beyond in failure["message"]) is ("101" in payload.decode())


def test_a_window_that_nobody_knows_is_not_exceeded() -> None:
    rules = ReplyRules(detect_overflow=True)

    assert reason(translate(delta("stop", usage(10**9, 1), content="a"), rules=rules)) == {"kind": "stop"}


def test_where_overflow_is_an_error_of_the_server_figures_say_nothing() -> None:
    chunks = translate(delta("length", usage(10**6, 0)))

    assert reason(chunks) == {"kind": "max-tokens"}
    assert any(isinstance(chunk, UsageChunk) for chunk in chunks)
