"""How errors read in `turn/end`: one line, whatever they are made of."""

import pytest

from dsh.agent.failure import failure_of, render_causes
from dsh.errors import CompositionError, DshError
from dsh.llm.failure import LlmError, LlmFailure
from dsh.session.vocabulary import payload_fault


def caused(error: Exception, cause: BaseException) -> Exception:
    error.__cause__ = cause
    return error


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("plain"), "plain"),
        (ValueError(), "ValueError"),
        (caused(ValueError("outer"), KeyError()), "outer: KeyError"),
        (caused(ValueError("same"), ValueError("same")), "same"),
        (
            caused(
                ValueError("msg"),
                caused(ValueError("deep"), ExceptionGroup("agg", [ValueError("p"), TypeError()])),
            ),
            "msg: deep: agg [p; TypeError]",
        ),
        (Unprintable(), "<unrenderable value>"),
        (caused(ValueError("outer"), Unprintable()), "outer: <unrenderable value>"),
        ("a plain text", "a plain text"),
        (7, "7"),
    ],
)
def test_the_chain_of_causes_in_one_line(error: object, line: str) -> None:
    assert render_causes(error) == line


def test_a_cycle_of_causes_ends() -> None:
    first, second = ValueError("a"), ValueError("b")
    first.__cause__, second.__cause__ = second, first
    assert render_causes(first) == "a: b: <circular cause>"


def test_facts_of_the_model_side_are_kept_verbatim_and_codes_of_the_harness_too() -> None:
    facts = LlmFailure("slow down", "RATE_LIMIT", 429, 1000.0, "req-1")
    assert failure_of(LlmError(facts)) == facts
    assert failure_of(CompositionError("odd", code="ODD")) == LlmFailure("odd", "ODD")
    assert failure_of(DshError("odd", code="ODD", hint="mend it")) == LlmFailure("odd; mend it", "ODD")
    assert failure_of(DshError("no code")) == LlmFailure("no code", "UNKNOWN")
    assert failure_of(ValueError("x")) == LlmFailure("x", "UNKNOWN")


class WithoutCode(DshError):
    @property
    def code(self) -> str:  # type: ignore[override]
        raise RuntimeError("no code")

    def __init__(self) -> None:
        Exception.__init__(self, "odd")


def coded(code: object) -> DshError:
    error = DshError("odd")
    error.code = code  # type: ignore[assignment]
    return error


@pytest.mark.parametrize(
    "error",
    [
        coded(5),
        WithoutCode(),
        LlmError(LlmFailure("odd", "CODE", request_id=5)),  # type: ignore[arg-type]
        LlmError(LlmFailure(5, "CODE")),  # type: ignore[arg-type]
        LlmError(LlmFailure("bad \udc80 byte", "CODE")),
        ValueError("x" * 1_000_000),
        LlmError(LlmFailure("x" * 1_000_000, "CODE")),
    ],
)
def test_whatever_an_error_says_the_log_takes_its_record(error: Exception) -> None:
    """An end that the log refused would leave the turn open, and its session without further turns."""
    record = failure_of(error).to_json()
    end = {"turn": 1, "reason": {"kind": "error", "error": record}}
    assert payload_fault("turn/end", end) is None
    assert len(record["message"]) < 20_000
    record["message"].encode()


def test_what_is_logged_is_valid_unicode() -> None:
    assert failure_of(ValueError("bad \udc80 byte")).message == "bad \ufffd byte"
