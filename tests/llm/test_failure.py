"""The record of a failure: only facts that make sense, in the log's key order."""

from typing import Any

import pytest

from dsh.llm.failure import LlmError, LlmFailure


def test_a_failure_reads_back_from_its_json_in_order() -> None:
    failure = LlmFailure("m", "SERVER", 503, 3000, "r-1")

    assert list(failure.to_json()) == ["message", "code", "status", "providerRetryAfterMs", "requestId"]
    assert LlmFailure.from_json(failure.to_json()) == failure
    assert LlmFailure("m", "C").to_json() == {"message": "m", "code": "C"}


@pytest.mark.parametrize(
    "facts",
    [
        ("", "C"),
        ("m", ""),
        ("m", "C", 99),
        ("m", "C", 600),
        ("m", "C", None, 0.0),
        ("m", "C", None, -1.0),
        ("m", "C", None, float("nan")),
        ("m", "C", None, float("inf")),
        ("m", "C", None, None, ""),
    ],
)
def test_invalid_facts_are_refused(facts: tuple[Any, ...]) -> None:
    with pytest.raises(ValueError, match="LlmFailure"):
        LlmFailure(*facts)


def test_an_error_carries_the_code_and_ends_the_process_accordingly() -> None:
    error = LlmError.of("SERVER", "boom", status=500)

    assert (error.code, str(error), error.exit_code, error.failure.status) == ("SERVER", "boom", 1, 500)
    assert LlmError.of("AUTH", "no").exit_code == 4
    assert LlmError.of("MISSING_CREDENTIAL", "no").exit_code == 4
