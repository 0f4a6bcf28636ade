"""The mock server as the public Anthropic client sees it: an opinion that is not ours, on every behaviour."""

import json
from collections.abc import Mapping
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic._exceptions import OverloadedError, RequestTimeoutError, ServiceUnavailableError
from anthropic.types import Message

from dsh.testing.mock_server import MockModelServer, MockOptions
from dsh.testing.mock_server.behaviour import ANTHROPIC_BEHAVIOURS
from dsh.testing.mock_server.dialect.anthropic import signature
from dsh.testing.mock_server.quirk.framing import HUGE_CHARS, MIXED, SEPARATORS

OPTIONS = MockOptions(chunk_delay_ms=1, disconnect_delay_ms=1)
SAID, PARTIAL = OPTIONS.success_text, OPTIONS.partial_text
ARGUMENTS = json.loads(OPTIONS.tool_arguments)
ENDLESS = ("endless_keep_alive",)
"""No client has a limit for these but its own patience."""

SAYS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("success", "slow_success", "reasoning_success", "overflow_by_usage", "empty_deltas"),
            *("missing_done", "wrong_content_type", "keep_alive_comments", "crlf", "mixed_line_ends"),
            *("bare_fields", "two_data_lines", "one_piece", "done_without_blank_line", "malformed_usage"),
            *("pings", "stop_sequence", "usage_at_end", "redacted_thinking", "hidden_thinking"),
            *("server_tool", "text_in_start", "unknown_delta", "tool_call_then_text"),
        ),
        SAID,
    ),
    **dict.fromkeys(
        ("max_tokens", "content_filter", "unknown_finish", "pause_turn", "window_exceeded"), PARTIAL
    ),
    **dict.fromkeys(("reasoning_only", "overflow_by_length", "empty"), ""),
    "unicode_separators": SEPARATORS,
    "split_utf8": MIXED,
    "byte_by_byte": MIXED,
    "lone_surrogate": "half \ud83d pair",
    "huge_event": "x" * HUGE_CHARS,
}
ENDS: Mapping[str, str] = {
    "max_tokens": "max_tokens",
    "overflow_by_length": "max_tokens",
    "content_filter": "refusal",
    "unknown_finish": "tired",
    "pause_turn": "pause_turn",
    "window_exceeded": "model_context_window_exceeded",
    "stop_sequence": "stop_sequence",
    "tool_call_then_text": "tool_use",
}
"""Where the stop reason is not `end_turn`."""
CUT: Mapping[str, str] = {
    "stream_eof": "",
    "partial_eof": PARTIAL,
    "partial_event_eof": PARTIAL[:16],
    "never_finished": SAID,
    "call_cut_off": "",
}
"""The client takes what came, and knows no reason for its end."""
CALLS: Mapping[str, int] = {
    **dict.fromkeys(
        (
            *("tool_call_success", "tool_call_at_once", "reasoning_tool_call", "tool_call_then_text"),
            *("thinking_then_call", "input_in_start", "empty_text_block"),
        ),
        1,
    ),
    "parallel_tool_calls": 3,
}
EMPTY_CALLS = ("tool_call_without_arguments", "tool_call_empty_fragments")
FAILS: Mapping[str, type[Exception]] = {
    **dict.fromkeys(("connection_reset", "redirect"), anthropic.APIConnectionError),
    "silent": anthropic.APITimeoutError,
    **dict.fromkeys(
        ("stream_disconnect", "partial_disconnect", "call_disconnect"), httpx2.RemoteProtocolError
    ),
    **dict.fromkeys(("stall", "stall_after_text"), httpx2.ReadTimeout),
    **dict.fromkeys(
        (
            *("empty_body", "no_content", "malformed_event", "json_error", "html_page", "byte_order_mark"),
            "no_message_start",
        ),
        AssertionError,
    ),
    "malformed_json": json.JSONDecodeError,
    "invalid_utf8": UnicodeDecodeError,
    "usage_never": AttributeError,
    "tool_call_bad_arguments": ValueError,
    **dict.fromkeys(
        ("rate_limit", "rate_limit_ms", "rate_limit_date", "rate_limit_reset", "rate_limit_untold"),
        anthropic.RateLimitError,
    ),
    **dict.fromkeys(
        ("server_error", "error_without_message", "error_as_text", "gateway_page"),
        anthropic.InternalServerError,
    ),
    **dict.fromkeys(("service_unavailable", "empty_unavailable"), ServiceUnavailableError),
    "overloaded": OverloadedError,
    "auth_error": anthropic.AuthenticationError,
    **dict.fromkeys(("permission", "latin1_page"), anthropic.PermissionDeniedError),
    **dict.fromkeys(("not_found", "wrong_path"), anthropic.NotFoundError),
    **dict.fromkeys(("invalid_request", "context_overflow", "quota_exceeded"), anthropic.BadRequestError),
    "request_timeout": RequestTimeoutError,
    **dict.fromkeys(("too_large", "too_early"), anthropic.APIStatusError),
    **dict.fromkeys(("in_band_error", "in_band_error_first", "error_after_call"), anthropic.APIStatusError),
}


def client_of(server: MockModelServer, *, key: str = "k", timeout: float = 10) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.anthropic_url, api_key=key, max_retries=0, timeout=timeout)


def ask(behaviour: str, *, key: str = "k", **fields: Any) -> Message:
    """One request through the client: the message it puts together."""
    timeout = 0.15 if behaviour in ("silent", "stall", "stall_after_text") else 10
    with MockModelServer([behaviour], api_key="k", options=OPTIONS).in_thread() as server:
        with client_of(server, key=key, timeout=timeout) as client:
            fields = {"max_tokens": 5000, "messages": [{"role": "user", "content": "hi"}], **fields}
            with client.messages.stream(model="m", **fields) as stream:
                return stream.get_final_message()


def text_of(message: Message) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_every_behaviour_is_tried_here() -> None:
    assert {*SAYS, *CUT, *CALLS, *EMPTY_CALLS, *FAILS, *ENDLESS} == set(ANTHROPIC_BEHAVIOURS)


@pytest.mark.parametrize("behaviour", SAYS)
def test_a_whole_reply_is_its_text_and_its_end(behaviour: str) -> None:
    message = ask(behaviour)

    assert text_of(message) == SAYS[behaviour]
    assert message.stop_reason == ENDS.get(behaviour, "end_turn")


@pytest.mark.parametrize("behaviour", CUT)
def test_a_reply_cut_short_has_no_end(behaviour: str) -> None:
    message = ask(behaviour)

    assert (text_of(message), message.stop_reason) == (CUT[behaviour], None)


@pytest.mark.parametrize("behaviour", CALLS)
def test_tool_calls_are_put_together(behaviour: str) -> None:
    message = ask(behaviour)

    calls = [(block.id, block.name, block.input) for block in message.content if block.type == "tool_use"]
    wanted = [(f"mock-call-{n + 1}", OPTIONS.tool_name, ARGUMENTS) for n in range(CALLS[behaviour])]
    assert (calls, message.stop_reason) == (wanted, "tool_use")


@pytest.mark.parametrize("behaviour", EMPTY_CALLS)
def test_a_call_without_arguments_has_an_empty_object(behaviour: str) -> None:
    assert [block.input for block in ask(behaviour).content if block.type == "tool_use"] == [{}]


@pytest.mark.parametrize("behaviour", FAILS)
def test_a_failure_is_one_of_its_own_kinds(behaviour: str) -> None:
    with pytest.raises(FAILS[behaviour]):
        ask(behaviour)


def test_thinking_is_signed_and_stands_first() -> None:
    thinking, text = ask("reasoning_success", thinking={"type": "enabled", "budget_tokens": 1024}).content

    assert thinking.type == "thinking" and text.type == "text"
    assert (thinking.thinking, thinking.signature) == (
        OPTIONS.reasoning_text,
        signature(OPTIONS.reasoning_text),
    )


def test_thinking_that_nobody_may_read_is_a_block_of_its_own() -> None:
    kinds = [block.type for block in ask("thinking_then_call").content]
    assert kinds == ["thinking", "redacted_thinking", "thinking", "tool_use"]


def test_usage_is_in_disjoint_counts_and_the_last_one_holds() -> None:
    usage, late = ask("success").usage, ask("usage_at_end").usage

    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (36, 64, 20)
    assert (late.input_tokens, late.cache_creation_input_tokens, late.output_tokens) == (30, 6, 20)


def test_error_types_request_ids_and_waits_are_read() -> None:
    with pytest.raises(anthropic.RateLimitError) as limit:
        ask("rate_limit")
    with pytest.raises(anthropic.APIStatusError) as overload:
        ask("error_after_call")

    assert limit.value.request_id == OPTIONS.request_id
    assert limit.value.response.headers["retry-after"] == "1"
    assert isinstance(overload.value.body, dict)
    assert overload.value.body["error"]["type"] == "overloaded_error"


def test_a_wrong_key_is_refused() -> None:
    with pytest.raises(anthropic.AuthenticationError):
        ask("success", key="other")


def test_models_are_listed() -> None:
    with MockModelServer(models=["claude-a", "claude-b"]).in_thread() as server:
        with client_of(server) as client:
            assert [model.id for model in client.models.list()] == ["claude-a", "claude-b"]


def test_a_wrong_request_is_told_in_its_own_words() -> None:
    with pytest.raises(anthropic.BadRequestError, match="budget_tokens"):
        ask("success", thinking={"type": "enabled", "budget_tokens": 5000})


def test_a_turn_with_a_tool_and_thinking_goes_round() -> None:
    """What the client hands back of its own messages is what the strict server wants to see."""
    script = ["thinking_then_call", "success"]
    tools = [{"name": "bash", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}]
    messages: list[Any] = [{"role": "user", "content": "hi"}]
    with MockModelServer(script).in_thread() as server, client_of(server) as client:
        for _ in script:
            with client.messages.stream(
                model="m",
                max_tokens=5000,
                messages=messages,
                tools=tools,  # type: ignore[arg-type]
                thinking={"type": "enabled", "budget_tokens": 1024},
            ) as stream:
                message = stream.get_final_message()
            messages.append({"role": "assistant", "content": message.content})
            results = [
                {"type": "tool_result", "tool_use_id": block.id, "content": "done"}
                for block in message.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results})
    assert text_of(message) == SAID and server.refused == []
