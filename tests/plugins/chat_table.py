"""What every chat-completions route makes of the mock server's behaviours (`spec/llm.md` §4.4, §4.5)."""

from dsh.testing.mock_server import MockOptions

SUCCESS = MockOptions().success_text
PARTIAL = MockOptions().partial_text

WHOLE = [
    # the behaviour, the text, the kind of finish
    ("success", SUCCESS, "stop"),
    ("slow_success", SUCCESS, "stop"),
    ("reasoning_success", SUCCESS, "stop"),
    ("wrong_content_type", SUCCESS, "stop"),
    ("max_tokens", PARTIAL, "max-tokens"),
    ("crlf", SUCCESS, "stop"),
    ("byte_order_mark", SUCCESS, "stop"),
    ("keep_alive_comments", SUCCESS, "stop"),
    ("empty_deltas", SUCCESS, "stop"),
    ("done_without_blank_line", SUCCESS, "stop"),
    ("malformed_usage", SUCCESS, "stop"),
    ("unicode_separators", "line\u2028paragraph\u2029next\x85tab\x0bfeed\x0c", "stop"),
    ("split_utf8", "héllo wörld 🏷 한국어", "stop"),
    ("tool_call_then_text", SUCCESS, "tool-calls"),
]

FAULTS = [
    # the behaviour, the code
    ("connection_reset", "TRANSPORT"),
    ("stream_disconnect", "TRANSPORT"),
    ("partial_disconnect", "TRANSPORT"),
    ("empty", "EMPTY_RESPONSE"),
    ("no_content", "EMPTY_RESPONSE"),
    ("empty_body", "STREAM_CLOSED"),
    ("stream_eof", "STREAM_CLOSED"),
    ("partial_eof", "STREAM_CLOSED"),
    ("missing_done", "STREAM_CLOSED"),
    ("malformed_json", "MALFORMED_RESPONSE"),
    ("malformed_event", "MALFORMED_RESPONSE"),
    ("html_page", "MALFORMED_RESPONSE"),
    ("rate_limit", "RATE_LIMIT"),
    ("server_error", "SERVER"),
    ("service_unavailable", "SERVER"),
    ("gateway_page", "SERVER"),
    ("auth_error", "AUTH"),
    ("invalid_request", "INVALID_REQUEST"),
    ("context_overflow", "CONTEXT_WINDOW_EXCEEDED"),
    ("quota_exceeded", "QUOTA"),
    ("request_timeout", "HTTP_408"),
    ("too_early", "HTTP_425"),
    ("redirect", "HTTP_307"),
    ("content_filter", "CONTENT_FILTER"),
    ("insufficient_resource", "INSUFFICIENT_SYSTEM_RESOURCE"),
    ("in_band_error", "RATE_LIMIT"),
    ("error_event", "SERVER"),
    ("json_error", "SERVER"),
]
