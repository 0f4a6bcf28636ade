"""Models that a route does not have: whose refusal says so, and what may have been meant."""

import pytest

from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.unknown_model import closest, is_unknown_model, told, unknown_model


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (404, "The model `gpt-9` does not exist or you do not have access to it."),
        (400, "Model Not Exist"),
        (404, 'model "gpt-9" not found, try pulling it first'),
        (404, "model 'gpt-9' not found"),
        (400, "gpt-9 is not a valid model ID"),
        (404, "No endpoints found for gpt-9."),
        (400, 'Invalid model identifier "gpt-9". Please specify a valid downloaded model'),
        (400, "litellm.BadRequestError: Invalid model name passed in model=gpt-9"),
        (404, "The requested model 'gpt-9' does not exist."),
        (400, "unknown model: gpt-9"),
        (422, "unsupported model gpt-9"),
        (400, "The model gpt-9 is not supported in this region"),
        (404, "gpt-9 is not available"),
    ],
)
def test_refusals_of_a_model_are_known_by_status_and_words(status: int, message: str) -> None:
    assert is_unknown_model(LlmFailure(message, f"HTTP_{status}", status), "gpt-9")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (500, "The model `gpt-9` does not exist"),
        (401, "The model `gpt-9` does not exist"),
        (404, "Not Found"),
        (400, "messages.3: no call before it has the id"),
        (400, "This model's maximum context length is 4096 tokens"),
        (404, "page not found"),
        (400, "Unsupported parameter: 'max_tokens' is not supported with this model. Use another."),
        (400, "Function tools with reasoning_effort are not supported for gpt-9 in /v1/chat/completions."),
        (400, "image input is not supported by the model"),
        (None, "The model `gpt-9` does not exist"),
    ],
)
def test_other_refusals_are_left_alone(status: int | None, message: str) -> None:
    assert not is_unknown_model(LlmFailure(message, "X", status), "gpt-9")


@pytest.mark.parametrize(
    ("model", "known", "expected"),
    [
        ("gpt-5-mni", ["o3", "gpt-5", "gpt-5-mini"], ["gpt-5-mini", "gpt-5"]),
        ("GPT-5", ["gpt-5", "o3"], ["gpt-5"]),
        ("llama", ["meta/llama-3.3-70b-instruct", "qwen"], ["meta/llama-3.3-70b-instruct"]),
        ("zzz", ["gpt-5"], []),
        ("", ["gpt-5"], []),
        ("gpt", [f"gpt-{n}" for n in range(9)], ["gpt-8", "gpt-7", "gpt-6"]),
    ],
)
def test_the_nearest_names_come_first_and_are_few(model: str, known: list[str], expected: list[str]) -> None:
    assert closest(model, known) == expected


def test_the_message_names_route_model_nearest_names_and_where_the_model_was_chosen() -> None:
    failure = LlmFailure("Model Not Exist", "INVALID_REQUEST", 400, request_id="r")
    error = told(LlmError(failure), "here", "gpt-5-mni", ["gpt-5-mini"])

    assert error.failure.message == (
        "route here has no model 'gpt-5-mni': Model Not Exist; nearest: gpt-5-mini; "
        "the model is chosen by agent-default-model, in the settings or as a row"
    )
    assert (error.code, error.failure.status, error.failure.request_id) == ("INVALID_REQUEST", 400, "r")


def test_what_a_server_lists_is_shown_where_it_is_a_name() -> None:
    listed = ["gpt-5\x1b[31m", "gpt-5\n", "gpt-5" * 21, "gpt-5-mini"]

    assert closest("gpt-5", listed) == ["gpt-5-mini"]
    assert "; it has: gpt-5-mini;" in unknown_model("here", "zzz", listed).message


def test_without_near_names_some_are_named_and_without_any_none() -> None:
    assert "; it has: a, b, c, …;" in unknown_model("here", "zzz", ["a", "b", "c", "d"]).message
    assert "; it has: a;" in unknown_model("here", "zzz", ["a"]).message
    assert "has no model 'zzz'; the model is chosen" in unknown_model("here", "zzz", []).message
