"""The mock server as the public OpenAI client sees it: an opinion that is not ours, on every behaviour."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

import openai
import pytest
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionChunk

from dsh.testing.mock_server import BEHAVIOURS, MockModelServer, MockOptions
from dsh.testing.mock_server.quirk.chat import LEAKED
from dsh.testing.mock_server.quirk.framing import HUGE_CHARS, MIXED, SEPARATORS

OPTIONS = MockOptions(chunk_delay_ms=1, disconnect_delay_ms=1)
Spelling = Literal["deepseek", "openai"]
SPELLINGS: tuple[Spelling, ...] = ("deepseek", "openai")
SAID, PARTIAL = OPTIONS.success_text, OPTIONS.partial_text
CALL = ("mock-call-1", OPTIONS.tool_name, json.loads(OPTIONS.tool_arguments))
ENDLESS = ("endless_keep_alive",)
"""No client has a limit for these but its own patience."""

SAYS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("success", "slow_success", "reasoning_success", "usage_never", "overflow_by_usage", "crlf"),
            *("missing_done", "empty_deltas", "wrong_content_type", "keep_alive_comments", "bare_fields"),
            *("mixed_line_ends", "two_data_lines", "one_piece", "byte_order_mark", "malformed_usage"),
            *("done_without_blank_line", "usage_trailing", "usage_everywhere", "null_content"),
            *("bytes_after_done", "tool_call_then_text"),
        ),
        SAID,
    ),
    **dict.fromkeys(("max_tokens", "content_filter", "unknown_finish", "insufficient_resource"), PARTIAL),
    **dict.fromkeys(("reasoning_only", "overflow_by_length", "empty", "finish_without_calls"), ""),
    "unicode_separators": SEPARATORS,
    "split_utf8": MIXED,
    "byte_by_byte": MIXED,
    "lone_surrogate": "half \ud83d pair",
    "huge_event": "x" * HUGE_CHARS,
    "several_choices": f"the other{SAID}",
    "leaked_tool_calls": f"{LEAKED}<\uff5ctool\u2581sep\uff5c>bash",
}
ENDS: Mapping[str, str] = {
    "max_tokens": "length",
    "overflow_by_length": "length",
    "content_filter": "content_filter",
    "unknown_finish": "tired",
    "insufficient_resource": "insufficient_system_resource",
    "finish_without_calls": "tool_calls",
    "tool_call_then_text": "tool_calls",
}
"""Where the finish reason is not `stop`."""
CUT: Mapping[str, str] = {
    **dict.fromkeys(("empty_body", "no_content", "stream_eof", "html_page", "json_error"), ""),
    "partial_eof": PARTIAL,
    "partial_event_eof": PARTIAL[:16],
    "never_finished": SAID,
}
"""The client takes what came, and knows no reason for its end."""
CALLS: Mapping[str, int] = {
    **dict.fromkeys(
        (
            *("tool_call_success", "tool_call_at_once", "reasoning_tool_call", "tool_call_then_text"),
            *("tool_call_two_entries", "tool_call_late_name", "tool_call_object_arguments"),
            *("tool_call_and_stop", "tool_call_without_id", "tool_call_null_later", "tool_call_repeated_id"),
        ),
        1,
    ),
    **dict.fromkeys(("tool_calls_interleaved", "tool_calls_gapped_index", "tool_calls_same_id"), 2),
    "parallel_tool_calls": 3,
}
ODD_CALLS = (
    *("tool_call_without_arguments", "tool_call_empty_fragments", "tool_call_bad_arguments"),
    *("tool_calls_without_index", "tool_calls_same_index", "tool_call_moving_index"),
)
"""Fragments that do not add up by their index alone."""
FAILS: Mapping[str, type[Exception]] = {
    **dict.fromkeys(
        ("connection_reset", "stream_disconnect", "partial_disconnect", "call_disconnect", "redirect"),
        openai.APIConnectionError,
    ),
    **dict.fromkeys(("silent", "stall", "stall_after_text"), openai.APITimeoutError),
    **dict.fromkeys(("malformed_json", "error_event"), json.JSONDecodeError),
    **dict.fromkeys(("malformed_event", "null_event"), AttributeError),
    "invalid_utf8": UnicodeDecodeError,
    **dict.fromkeys(
        (
            *("rate_limit", "rate_limit_ms", "rate_limit_date", "rate_limit_reset", "rate_limit_untold"),
            "quota_exceeded",
        ),
        openai.RateLimitError,
    ),
    **dict.fromkeys(
        (
            *("server_error", "service_unavailable", "overloaded", "error_without_message"),
            *("error_as_text", "empty_unavailable", "gateway_page"),
        ),
        openai.InternalServerError,
    ),
    "auth_error": openai.AuthenticationError,
    **dict.fromkeys(("permission", "latin1_page"), openai.PermissionDeniedError),
    **dict.fromkeys(("not_found", "wrong_path"), openai.NotFoundError),
    **dict.fromkeys(("invalid_request", "context_overflow"), openai.BadRequestError),
    **dict.fromkeys(("too_large", "request_timeout", "too_early"), openai.APIStatusError),
    **dict.fromkeys(("in_band_error", "in_band_error_first", "in_band_error_with_choices"), openai.APIError),
}


class Reply(NamedTuple):
    """What the client makes of one streamed reply."""

    chunks: list[ChatCompletionChunk]

    @property
    def deltas(self) -> list[Any]:
        return [choice.delta for chunk in self.chunks for choice in chunk.choices]

    @property
    def text(self) -> str:
        return "".join(delta.content or "" for delta in self.deltas)

    @property
    def ends(self) -> list[str]:
        return [c.finish_reason for chunk in self.chunks for c in chunk.choices if c.finish_reason]

    @property
    def usage(self) -> CompletionUsage:
        """The last one that was told."""
        return [chunk.usage for chunk in self.chunks if chunk.usage][-1]

    def reasoning(self, spelling: Spelling) -> str:
        field = "reasoning_content" if spelling == "deepseek" else "reasoning"
        return "".join(getattr(delta, field, None) or "" for delta in self.deltas)

    def calls(self) -> list[tuple[str | None, str | None, Any]]:
        """By index, as the client's own users put them together."""
        ids: dict[int, str | None] = {}
        names: dict[int, str | None] = {}
        arguments: dict[int, Any] = {}
        for piece in (piece for delta in self.deltas for piece in delta.tool_calls or ()):
            ids[piece.index] = ids.get(piece.index) or piece.id
            names[piece.index] = names.get(piece.index) or piece.function.name
            if isinstance(piece.function.arguments, str | None):
                arguments[piece.index] = arguments.get(piece.index, "") + (piece.function.arguments or "")
            else:
                arguments[piece.index] = json.dumps(piece.function.arguments)
        return [(ids[at], names[at], json.loads(arguments[at])) for at in sorted(ids)]


def ask(behaviour: str, spelling: Spelling = "deepseek", *, key: str = "k", **fields: Any) -> Reply:
    """One request through the client."""
    timeout = 0.15 if behaviour in FAILS and FAILS[behaviour] is openai.APITimeoutError else 10
    server = MockModelServer([behaviour], api_key="k", options=OPTIONS, dialect=spelling)
    with server.in_thread():
        with openai.OpenAI(base_url=server.base_url, api_key=key, max_retries=0, timeout=timeout) as client:
            fields = {"stream_options": {"include_usage": True}, **fields}
            stream = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True, **fields
            )
            return Reply(list(stream))


def cases(*names: Iterable[str]) -> pytest.MarkDecorator:
    """Each of these behaviours in both spellings."""
    found = [(spelling, name) for spelling in SPELLINGS for some in names for name in some]
    return pytest.mark.parametrize(("spelling", "behaviour"), found, ids=lambda value: str(value))


def test_every_behaviour_is_tried_here() -> None:
    assert {*SAYS, *CUT, *CALLS, *ODD_CALLS, *FAILS, *ENDLESS} == set(BEHAVIOURS)


@cases(SAYS)
def test_a_whole_reply_is_its_text_and_its_end(spelling: Spelling, behaviour: str) -> None:
    reply = ask(behaviour, spelling)

    assert reply.text == SAYS[behaviour]
    assert reply.ends == [ENDS.get(behaviour, "stop")]


@cases(CUT)
def test_a_reply_cut_short_has_no_end(spelling: Spelling, behaviour: str) -> None:
    reply = ask(behaviour, spelling)

    assert (reply.text, reply.ends) == (CUT[behaviour], [])


@cases(CALLS)
def test_tool_calls_are_put_together(spelling: Spelling, behaviour: str) -> None:
    reply = ask(behaviour, spelling)

    assert reply.ends == ["stop" if behaviour == "tool_call_and_stop" else "tool_calls"]
    assert [call[1:] for call in reply.calls()] == [CALL[1:]] * CALLS[behaviour]
    if behaviour not in ("tool_call_without_id", "tool_calls_same_id"):
        assert [call[0] for call in reply.calls()] == [f"mock-call-{n + 1}" for n in range(CALLS[behaviour])]


@cases(ODD_CALLS)
def test_odd_calls_arrive_as_they_are_sent(spelling: Spelling, behaviour: str) -> None:
    reply = ask(behaviour, spelling)

    pieces = [piece for delta in reply.deltas for piece in delta.tool_calls or ()]
    assert reply.ends == ["tool_calls"]
    assert pieces[0].id == CALL[0] and pieces[0].function.name == CALL[1]


@cases(FAILS)
def test_a_failure_is_one_of_its_own_kinds(spelling: Spelling, behaviour: str) -> None:
    with pytest.raises(FAILS[behaviour]):
        assert ask(behaviour, spelling).text


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_reasoning_and_usage_are_in_the_fields_of_their_server(spelling: Spelling) -> None:
    reply = ask("reasoning_success", spelling)

    assert reply.reasoning(spelling) == OPTIONS.reasoning_text
    usage = reply.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (100, 20, 120)
    assert usage.completion_tokens_details and usage.completion_tokens_details.reasoning_tokens == 8
    if spelling == "openai":
        assert usage.prompt_tokens_details and usage.prompt_tokens_details.cached_tokens == 64
        assert reply.chunks[-1].choices == []
    else:
        assert (usage.prompt_cache_hit_tokens, usage.prompt_cache_miss_tokens) == (64, 36)  # type: ignore[attr-defined]


def test_usage_is_told_to_who_asks_for_it() -> None:
    assert not [c for c in ask("success", "openai", stream_options=openai.omit).chunks if c.usage]


def test_codes_request_ids_and_waits_are_read() -> None:
    with pytest.raises(openai.BadRequestError) as overflow:
        ask("context_overflow")
    with pytest.raises(openai.RateLimitError) as limit:
        ask("rate_limit")

    assert overflow.value.code == "context_length_exceeded"
    assert overflow.value.request_id == OPTIONS.request_id
    assert limit.value.response.headers["retry-after"] == "1"


def test_a_wrong_key_is_refused() -> None:
    with pytest.raises(openai.AuthenticationError):
        ask("success", key="other")


def test_models_are_listed() -> None:
    with MockModelServer(models=["a", "b"], api_key="k").in_thread() as server:
        with openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
            assert [model.id for model in client.models.list()] == ["a", "b"]
    assert (server.requests, server.listings) == ([], 1)


def test_a_wrong_request_is_told_in_its_own_words() -> None:
    with MockModelServer(dialect="openai").in_thread() as server:
        with openai.OpenAI(base_url=server.base_url, api_key="k", max_retries=0) as client:
            with pytest.raises(openai.BadRequestError, match="are not answered"):
                client.chat.completions.create(
                    model="m",
                    stream=True,
                    messages=[
                        {"role": "user", "content": "hi"},
                        {
                            "role": "assistant",
                            "tool_calls": [
                                {"id": "c", "type": "function", "function": {"name": "t", "arguments": "{}"}}
                            ],
                        },
                    ],
                )
    assert [refused.status for refused in server.refused] == [400]
