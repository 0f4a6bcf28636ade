"""Refusals of what a route's `compat` governs: which key is named, and what is left as it was said."""

import pytest

from dsh.llm.chat.advice import advised
from dsh.llm.chat.dialect import Dialect
from dsh.llm.failure import LlmError, LlmFailure

USUAL = Dialect()
BACK = "The `reasoning_content` in the thinking mode must be passed back to the API."
EXTRA = "body.messages.2.assistant.reasoning_content: Extra inputs are not permitted"
TOOLS = (
    "Function tools with reasoning_effort are not supported for gpt-6-sol in /v1/chat/completions. "
    "To use function tools, use /v1/responses or set reasoning_effort to 'none'."
)
RENAMED = (
    "Unsupported parameter: 'max_tokens' is not supported with this model. "
    "Use 'max_completion_tokens' instead."
)


def message(
    said: str, dialect: Dialect, status: int | None = 400, code: str = "INVALID_REQUEST"
) -> str | None:
    made = advised(LlmError(LlmFailure(said, code, status)), "lab", dialect)
    return None if made is None else made.failure.message


@pytest.mark.parametrize(
    ("said", "dialect", "key"),
    [
        (TOOLS, USUAL, "reasoningEffort: off, with compat.effortMap: {off: none}"),
        (RENAMED, USUAL, "compat.maxTokensField: max_completion_tokens"),
        (
            "Unknown field: max_completion_tokens",
            Dialect(max_tokens_field="max_completion_tokens"),
            "compat.maxTokensField: max_tokens",
        ),
        ("stream_options: Extra inputs are not permitted", USUAL, "compat.streamOptions: false"),
        (
            "'developer' is not one of ['system', 'assistant', 'user', 'tool']",
            Dialect(system_role="developer"),
            "compat.systemRole: system",
        ),
        (BACK, Dialect(reasoning_replay="none"), "compat.reasoningReplay: reasoning_content"),
        (BACK, USUAL, "compat.foreignReasoning: true"),
        (EXTRA, USUAL, "compat.reasoningReplay: none"),
    ],
)
def test_a_refusal_names_the_key_that_answers_it(said: str, dialect: Dialect, key: str) -> None:
    assert message(said, dialect) == f"{said.rstrip('. ')} (for route lab, set {key})"
    assert message(said, dialect, 422, "HTTP_422") is not None


@pytest.mark.parametrize(
    ("said", "dialect"),
    [
        ("stream_options must be an object", Dialect(stream_options=False)),
        ("ask the developer", USUAL),
        (BACK, Dialect(foreign_reasoning=True)),
        ("temperature must be at most 2", USUAL),
        ("reasoning_effort must be one of low, high", USUAL),
    ],
)
def test_other_refusals_are_left_as_they_are(said: str, dialect: Dialect) -> None:
    assert message(said, dialect) is None


@pytest.mark.parametrize(("status", "code"), [(500, "SERVER"), (400, "CONTEXT_WINDOW_EXCEEDED"), (None, "X")])
def test_only_a_refused_request_is_looked_at(status: int | None, code: str) -> None:
    assert message(RENAMED, USUAL, status, code) is None


def test_the_failure_keeps_its_code_status_and_request_id() -> None:
    error = LlmError(LlmFailure(RENAMED, "INVALID_REQUEST", 400, request_id="req_1"))
    made = advised(error, "lab", USUAL)
    assert made is not None and made.__cause__ is error
    assert (made.failure.code, made.failure.status, made.failure.request_id) == (
        "INVALID_REQUEST",
        400,
        "req_1",
    )
