"""What comes of every behaviour of the mock server, on every wire: said once, for all that play them."""

from collections.abc import Mapping
from typing import Any

from dsh.testing.mock_server import MockOptions
from dsh.testing.mock_server.quirk.framing import HUGE_CHARS, MIXED, SEPARATORS
from tests.contract.wire.wires import ANTHROPIC_WIRE, Wire

SAID = MockOptions().success_text

SAYS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("success", "slow_success", "reasoning_success", "empty_deltas", "usage_never"),
            *("wrong_content_type", "keep_alive_comments", "crlf", "mixed_line_ends", "bare_fields"),
            *(
                "done_without_blank_line",
                "two_data_lines",
                "one_piece",
                "byte_order_mark",
                "malformed_usage",
                "never_finished",
            ),
        ),
        SAID,
    ),
    "reasoning_only": "",
    "unicode_separators": SEPARATORS,
    "split_utf8": MIXED,
    "byte_by_byte": MIXED,
    "lone_surrogate": "half \ufffd pair",
    "invalid_utf8": "bad \ufffd byte",
    "huge_event": "x" * HUGE_CHARS,
}
CHAT_SAYS = dict.fromkeys(
    ("usage_trailing", "usage_everywhere", "null_content", "several_choices", "bytes_after_done"), SAID
)
ANTHROPIC_SAYS = dict.fromkeys(
    (
        *("pings", "stop_sequence", "usage_at_end", "redacted_thinking", "hidden_thinking"),
        *("no_message_start", "server_tool", "text_in_start", "unknown_delta"),
    ),
    SAID,
)
CALLS: Mapping[str, int] = {
    "reasoning_tool_call": 1,
    "tool_call_success": 1,
    "tool_call_at_once": 1,
    "parallel_tool_calls": 3,
    "tool_call_then_text": 1,
}
CHAT_CALLS: Mapping[str, int] = {
    "tool_call_without_id": 1,
    "tool_calls_without_index": 2,
    "tool_calls_interleaved": 2,
    "tool_calls_same_index": 2,
    "tool_calls_gapped_index": 2,
    "tool_calls_same_id": 2,
    "tool_call_two_entries": 1,
    "tool_call_moving_index": 1,
    "tool_call_late_name": 1,
    "tool_call_null_later": 1,
    "tool_call_repeated_id": 1,
    "tool_call_object_arguments": 1,
    "tool_call_and_stop": 1,
}
ANTHROPIC_CALLS: Mapping[str, int] = {"thinking_then_call": 1, "input_in_start": 1, "empty_text_block": 1}
ARGUMENTS: Mapping[str, str] = {
    "tool_call_without_arguments": "",
    "tool_call_empty_fragments": "{}",
    "tool_call_bad_arguments": '{"command": nope',
}
FAILS: Mapping[str, str] = {
    "connection_reset": "TRANSPORT",
    "stream_disconnect": "TRANSPORT",
    "partial_disconnect": "TRANSPORT",
    "call_disconnect": "TRANSPORT",
    "empty": "EMPTY_RESPONSE",
    "no_content": "EMPTY_RESPONSE",
    "empty_body": "STREAM_CLOSED",
    "stream_eof": "STREAM_CLOSED",
    "partial_eof": "STREAM_CLOSED",
    "partial_event_eof": "STREAM_CLOSED",
    "missing_done": "STREAM_CLOSED",
    "silent": "TIMEOUT",
    "stall": "TIMEOUT",
    "stall_after_text": "TIMEOUT",
    "endless_keep_alive": "TIMEOUT",
    "malformed_json": "MALFORMED_RESPONSE",
    "malformed_event": "MALFORMED_RESPONSE",
    "html_page": "MALFORMED_RESPONSE",
    "content_filter": "CONTENT_FILTER",
    "unknown_finish": "TIRED",
    "overflow_by_length": "CONTEXT_WINDOW_EXCEEDED",
    "overflow_by_usage": "CONTEXT_WINDOW_EXCEEDED",
    "rate_limit": "RATE_LIMIT",
    "rate_limit_ms": "RATE_LIMIT",
    "rate_limit_date": "RATE_LIMIT",
    "rate_limit_reset": "RATE_LIMIT",
    "rate_limit_untold": "RATE_LIMIT",
    "server_error": "SERVER",
    "service_unavailable": "SERVER",
    "overloaded": "SERVER",
    "empty_unavailable": "SERVER",
    "error_without_message": "SERVER",
    "error_as_text": "SERVER",
    "json_error": "SERVER",
    "gateway_page": "SERVER",
    "auth_error": "AUTH",
    "permission": "AUTH",
    "latin1_page": "AUTH",
    "not_found": "HTTP_404",
    "wrong_path": "HTTP_404",
    "redirect": "HTTP_307",
    "request_timeout": "HTTP_408",
    "too_early": "HTTP_425",
    "invalid_request": "INVALID_REQUEST",
    "too_large": "INVALID_REQUEST",
    "context_overflow": "CONTEXT_WINDOW_EXCEEDED",
    "quota_exceeded": "QUOTA",
    "in_band_error": "RATE_LIMIT",
    "in_band_error_first": "RATE_LIMIT",
}
CHAT_FAILS: Mapping[str, str] = {
    "in_band_error_with_choices": "RATE_LIMIT",
    "error_event": "SERVER",
    "insufficient_resource": "INSUFFICIENT_SYSTEM_RESOURCE",
    "null_event": "MALFORMED_RESPONSE",
    "leaked_tool_calls": "MALFORMED_RESPONSE",
    "finish_without_calls": "EMPTY_RESPONSE",
}
ANTHROPIC_FAILS: Mapping[str, str] = {
    "content_filter": "REFUSAL",
    "error_after_call": "SERVER",
    "call_cut_off": "STREAM_CLOSED",
    "pause_turn": "PAUSE_TURN",
    "window_exceeded": "CONTEXT_WINDOW_EXCEEDED",
}
LIMITS: Mapping[str, Mapping[str, Any]] = {
    "silent": {"streamIdleTimeoutMs": 60},
    "stall": {"streamIdleTimeoutMs": 60},
    "stall_after_text": {"streamIdleTimeoutMs": 60},
    "endless_keep_alive": {"totalTimeoutMs": 60},
    "overflow_by_usage": {"models": [{"id": "m", "contextWindow": 1000}]},
}
"""Options of the route that a behaviour needs."""
BY_NATURE: Mapping[str, Mapping[str, Any]] = {
    "deepseek": {"overflow_by_usage": SAID, "overflow_by_length": None},
    "anthropic": {"tool_call_without_arguments": ("{}",)},
}
"""DeepSeek refuses what is too long; on the Messages wire a call without arguments has an empty object."""


def outcomes(wire: Wire) -> dict[str, Any]:
    """By behaviour: a text said, a number of calls, arguments as `(text,)`, a code as `{code}`, None where
    the limit of output tokens ends it."""
    own = wire is ANTHROPIC_WIRE
    return {
        **SAYS,
        **(ANTHROPIC_SAYS if own else CHAT_SAYS),
        **CALLS,
        **(ANTHROPIC_CALLS if own else CHAT_CALLS),
        **{name: (text,) for name, text in ARGUMENTS.items()},
        **{name: {code} for name, code in {**FAILS, **(ANTHROPIC_FAILS if own else CHAT_FAILS)}.items()},
        "max_tokens": None,
        **BY_NATURE.get(wire.name, {}),
    }


def failures(wire: Wire) -> dict[str, str]:
    """By behaviour that is no answer on this wire: its code."""
    return {name: next(iter(found)) for name, found in outcomes(wire).items() if isinstance(found, set)}
