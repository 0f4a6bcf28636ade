"""The mock server as the public OpenAI client sees it: an opinion that is not ours."""

from collections.abc import Iterator

import openai
import pytest
from openai.types.chat import ChatCompletionChunk

from dsh.testing.mock_server import MockModelServer, MockOptions

OPTIONS = MockOptions(chunk_delay_ms=1, disconnect_delay_ms=1)


def chunks(behaviour: str, *, key: str = "k") -> Iterator[ChatCompletionChunk]:
    """What the client makes of one streamed reply."""
    with MockModelServer([behaviour], api_key="k", options=OPTIONS).in_thread() as server:
        with openai.OpenAI(base_url=server.base_url, api_key=key, max_retries=0, timeout=5) as client:
            yield from client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "hi"}],
                stream=True,
                stream_options={"include_usage": True},
            )


def text_of(behaviour: str) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks(behaviour) for choice in chunk.choices)


@pytest.mark.parametrize(
    "behaviour",
    ["success", "slow_success", "reasoning_success", "crlf", "keep_alive_comments", "empty_deltas"],
)
def test_a_whole_reply_is_text_usage_and_stop(behaviour: str) -> None:
    seen = list(chunks(behaviour))

    assert "".join(c.delta.content or "" for s in seen for c in s.choices) == OPTIONS.success_text
    assert [c.finish_reason for s in seen for c in s.choices if c.finish_reason] == ["stop"]
    [usage] = [s.usage for s in seen if s.usage]
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 20, 120)


def test_characters_survive_odd_cuts() -> None:
    assert text_of("split_utf8") == "héllo wörld 🏷 한국어"


def test_a_tool_call_is_put_together() -> None:
    calls = [
        c for s in chunks("tool_call_success") for choice in s.choices for c in choice.delta.tool_calls or ()
    ]
    functions = [call.function for call in calls if call.function]

    assert [call.id for call in calls if call.id] == ["mock-call-1"]
    assert [function.name for function in functions if function.name] == ["bash"]
    assert "".join(function.arguments or "" for function in functions) == OPTIONS.tool_arguments


@pytest.mark.parametrize(
    ("behaviour", "kind"),
    [
        ("invalid_request", openai.BadRequestError),
        ("context_overflow", openai.BadRequestError),
        ("auth_error", openai.AuthenticationError),
        ("rate_limit", openai.RateLimitError),
        ("quota_exceeded", openai.RateLimitError),
        ("server_error", openai.InternalServerError),
        ("service_unavailable", openai.InternalServerError),
        ("connection_reset", openai.APIConnectionError),
        ("in_band_error", openai.APIError),
    ],
)
def test_a_failure_is_one_of_its_own_kinds(behaviour: str, kind: type[openai.OpenAIError]) -> None:
    with pytest.raises(kind):
        list(chunks(behaviour))


def test_codes_and_request_ids_are_read() -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        list(chunks("context_overflow"))

    assert caught.value.code == "context_length_exceeded"
    assert caught.value.request_id == OPTIONS.request_id


def test_a_wrong_key_is_refused() -> None:
    with pytest.raises(openai.AuthenticationError):
        list(chunks("success", key="other"))
