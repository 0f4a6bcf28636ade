"""The behaviours of the mock model server by name: how servers answer, stall, break and misspell."""

import json
import math

from dsh.testing.mock_server.reply import (
    DONE,
    OPENING,
    Behaviour,
    MockOptions,
    Pause,
    Plan,
    Reset,
    Stall,
    Step,
    delta,
    ending,
    error_plan,
    event,
    pieces,
    texts,
    tool_call,
)

RANDOM_WEIGHTS = {
    "success": 48,
    "slow_success": 10,
    "partial_disconnect": 10,
    "connection_reset": 5,
    "stream_disconnect": 5,
    "empty": 5,
    "rate_limit": 5,
    "server_error": 4,
    "max_tokens": 2,
    "stall": 2,
    "service_unavailable": 2,
    "partial_eof": 1,
    "malformed_json": 1,
}


def _stream(*steps: Step) -> Plan:
    return Plan(steps=steps)


def _success(o: MockOptions) -> Plan:
    return _stream(OPENING, *texts(o.success_text, o), *ending())


def _slow_success(o: MockOptions) -> Plan:
    steps: list[Step] = []
    for piece in texts(o.success_text, o):
        steps += [piece, Pause(o.chunk_delay_ms)]
    return _stream(OPENING, *steps, *ending())


def _reasoning_success(o: MockOptions) -> Plan:
    thought = [delta({"reasoning_content": piece}) for piece in pieces(o.reasoning_text, o.chunk_size)]
    return _stream(OPENING, *thought, *texts(o.success_text, o), *ending())


def _tool_call_success(o: MockOptions) -> Plan:
    half = len(o.tool_arguments) // 2
    arguments = (o.tool_arguments[:half], o.tool_arguments[half:])
    return _stream(OPENING, *tool_call("mock-call-1", o.tool_name, arguments), *ending("tool_calls"))


def _max_tokens(o: MockOptions) -> Plan:
    return _stream(OPENING, *texts(o.partial_text, o), *ending("length"))


def _partial_disconnect(o: MockOptions) -> Plan:
    return _stream(OPENING, *texts(o.partial_text, o), Pause(o.disconnect_delay_ms), Reset())


def _rate_limit(o: MockOptions) -> Plan:
    wait = {"retry-after": str(math.ceil(o.retry_after_ms / 1000))}
    return error_plan(429, "Rate limit reached for requests", "rate_limit_error", "rate_limit_exceeded", wait)


def _wrong_content_type(o: MockOptions) -> Plan:
    return Plan(headers={"content-type": "application/json"}, steps=_success(o).steps)


def _unicode_separators(o: MockOptions) -> Plan:
    text = "line\u2028paragraph\u2029next\x85tab\x0bfeed\x0c"
    return _stream(OPENING, delta({"content": text}), *ending())


def _split_utf8(o: MockOptions) -> Plan:
    """Every character of several bytes is cut in the middle."""
    whole = b"".join([OPENING, delta({"content": "héllo wörld 🏷 한국어"}), *ending()])
    return _stream(*(whole[at : at + 7] for at in range(0, len(whole), 7)))


def _keep_alive_comments(o: MockOptions) -> Plan:
    steps: list[Step] = []
    for piece in texts(o.success_text, o):
        steps += [piece, Pause(o.chunk_delay_ms), b": keep-alive\n\n", Pause(o.chunk_delay_ms)]
    return _stream(b": keep-alive\n\n", OPENING, *steps, *ending())


def _empty_deltas(o: MockOptions) -> Plan:
    """Keeps alive with events that say nothing."""
    steps: list[Step] = []
    for piece in texts(o.success_text, o):
        steps += [piece, Pause(o.chunk_delay_ms), delta({"content": ""}), Pause(o.chunk_delay_ms)]
    return _stream(OPENING, *steps, *ending())


def _crlf(o: MockOptions) -> Plan:
    whole = b"".join(step for step in _success(o).steps if isinstance(step, bytes))
    return _stream(whole.replace(b"\n", b"\r\n"))


def _in_band_error(o: MockOptions) -> Plan:
    value = {"error": {"message": "Rate limit", "type": "rate_limit_error", "code": "429"}}
    return _stream(OPENING, *texts(o.partial_text, o), event(value), DONE)


def _error_event(o: MockOptions) -> Plan:
    return _stream(OPENING, b"event: error\ndata: the model is overloaded\n\n")


def _json_error(o: MockOptions) -> Plan:
    value = {"error": {"message": "internal error", "type": "server_error"}}
    return Plan(headers={"content-type": "application/json"}, steps=(json.dumps(value).encode(),))


def _html_page(o: MockOptions) -> Plan:
    page = b"<!doctype html><html><head><title>Log in</title></head><body><p>Welcome to the WiFi.</p></body>"
    return Plan(headers={"content-type": "text/html"}, steps=(page,))


def _gateway_page(o: MockOptions) -> Plan:
    page = (
        b"<html><head><title>502 Bad Gateway</title></head><body>"
        + b"<p>nginx</p>" * 3400
        + b"</body></html>"
    )
    return Plan(status=502, headers={"content-type": "text/html"}, steps=(page,))


def _redirect(o: MockOptions) -> Plan:
    return Plan(status=307, headers={"location": "http://127.0.0.1:9/elsewhere"})


def _tool_call_without_id(o: MockOptions) -> Plan:
    return _stream(OPENING, *tool_call(None, o.tool_name, (o.tool_arguments,)), *ending("tool_calls"))


def _tool_calls_without_index(o: MockOptions) -> Plan:
    first = tool_call("mock-call-1", o.tool_name, pieces(o.tool_arguments, 9), None)
    second = tool_call("mock-call-2", o.tool_name, pieces(o.tool_arguments, 9), None)
    return _stream(OPENING, *first, *second, *ending("tool_calls"))


def _tool_call_then_text(o: MockOptions) -> Plan:
    call = tool_call("mock-call-1", o.tool_name, (o.tool_arguments,))
    return _stream(OPENING, *call, *texts(o.success_text, o), *ending("tool_calls"))


def _endless_keep_alive(o: MockOptions) -> Plan:
    steps: list[Step] = []
    for _ in range(10_000):
        steps += [b": keep-alive\n\n", Pause(o.chunk_delay_ms)]
    return _stream(OPENING, *steps)


BEHAVIOURS: dict[str, Behaviour] = {
    "success": _success,
    "slow_success": _slow_success,
    "reasoning_success": _reasoning_success,
    "tool_call_success": _tool_call_success,
    "max_tokens": _max_tokens,
    "connection_reset": lambda o: Plan(status=0, steps=(Reset(),)),
    "stream_disconnect": lambda o: _stream(Pause(o.disconnect_delay_ms), Reset()),
    "partial_disconnect": _partial_disconnect,
    "empty": lambda o: _stream(OPENING, *ending()),
    "empty_body": lambda o: _stream(),
    "stream_eof": lambda o: _stream(OPENING),
    "partial_eof": lambda o: _stream(OPENING, *texts(o.partial_text, o)),
    "stall": lambda o: _stream(Stall()),
    "malformed_json": lambda o: _stream(OPENING, b"data: {not-json\n\n", DONE),
    "malformed_event": lambda o: _stream(event({"choices": [None]}), DONE),
    "wrong_content_type": _wrong_content_type,
    "rate_limit": _rate_limit,
    "server_error": lambda o: error_plan(500, "The server had an error", "server_error"),
    "service_unavailable": lambda o: error_plan(503, "The engine is overloaded", "server_error"),
    "auth_error": lambda o: error_plan(401, "Incorrect API key", "authentication_error", "invalid_api_key"),
    "invalid_request": lambda o: error_plan(400, "Invalid request", "invalid_request_error"),
    "context_overflow": lambda o: error_plan(
        400,
        "This model's maximum context length is 131072 tokens.",
        "invalid_request_error",
        "context_length_exceeded",
    ),
    "quota_exceeded": lambda o: error_plan(
        429, "You exceeded your current quota", "insufficient_quota", "insufficient_quota"
    ),
    "request_timeout": lambda o: error_plan(408, "Request timed out", "timeout"),
    "too_early": lambda o: error_plan(425, "Too early", "too_early"),
    "no_content": lambda o: Plan(status=204, headers={}),
    "content_filter": lambda o: _stream(OPENING, *texts(o.partial_text, o), *ending("content_filter")),
    "insufficient_resource": lambda o: _stream(
        OPENING, *texts(o.partial_text, o), *ending("insufficient_system_resource")
    ),
    "unicode_separators": _unicode_separators,
    "split_utf8": _split_utf8,
    "keep_alive_comments": _keep_alive_comments,
    "endless_keep_alive": _endless_keep_alive,
    "empty_deltas": _empty_deltas,
    "crlf": _crlf,
    "byte_order_mark": lambda o: _stream(b"\xef\xbb\xbf", *_success(o).steps),
    "in_band_error": _in_band_error,
    "error_event": _error_event,
    "json_error": _json_error,
    "html_page": _html_page,
    "gateway_page": _gateway_page,
    "redirect": _redirect,
    "missing_done": lambda o: _stream(*_success(o).steps[:-1]),
    "done_without_blank_line": lambda o: _stream(*_success(o).steps[:-1], b"data: [DONE]"),
    "malformed_usage": lambda o: _stream(
        OPENING, *texts(o.success_text, o), *ending(usage={"prompt_tokens": -3, "completion_tokens": "x"})
    ),
    "tool_call_without_id": _tool_call_without_id,
    "tool_calls_without_index": _tool_calls_without_index,
    "tool_call_then_text": _tool_call_then_text,
}
"""Every behaviour but `random` (a seeded choice) and `connection_refused` (of the command, first only)."""
