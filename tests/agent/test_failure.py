"""How errors read in `turn/end`: one line, whatever they are made of."""

import pytest

from dsh.agent.failure import failure_of, render_causes
from dsh.errors import CompositionError, DshError
from dsh.llm.failure import LlmError, LlmFailure


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
    assert failure_of(LlmError(facts)) is facts
    assert failure_of(CompositionError("odd", code="ODD")) == LlmFailure("odd", "ODD")
    assert failure_of(DshError("odd", code="ODD", hint="mend it")) == LlmFailure("odd; mend it", "ODD")
    assert failure_of(DshError("no code")) == LlmFailure("no code", "UNKNOWN")
    assert failure_of(ValueError("x")) == LlmFailure("x", "UNKNOWN")


def test_what_is_logged_is_valid_unicode() -> None:
    assert failure_of(ValueError("bad \udc80 byte")).message == "bad \ufffd byte"
