"""The behaviours of the mock model server by name: how any server answers, stalls and breaks off.

Each is written once, in parts, and put on the wire by the dialect of the request. What only one wire can get
wrong is in `quirk`.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias, get_args

from dsh.testing.mock_server.dialect.base import Dialect, streamed
from dsh.testing.mock_server.part import (
    Call,
    End,
    Fault,
    FaultKind,
    Opening,
    Part,
    Text,
    said,
    thought,
    whole,
)
from dsh.testing.mock_server.plan import JSON_HEADERS, MockOptions, Pause, Plan, Reset, Stall
from dsh.testing.mock_server.quirk import ANTHROPIC_QUIRKS, CHAT_QUIRKS

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

Behaviour: TypeAlias = Callable[[Dialect, MockOptions], Plan]
Reply: TypeAlias = Callable[[MockOptions], list[Part]]


def _reply(reply: Reply) -> Behaviour:
    """The behaviour of a reply that every dialect can put on the wire."""
    return lambda d, o: streamed(d, reply(o), o)


def _fault(kind: FaultKind) -> Behaviour:
    return lambda d, o: d.error(Fault(kind), o)


def _success(o: MockOptions) -> list[Part]:
    return whole(*said(o.success_text, o))


def _slow_success(o: MockOptions) -> list[Part]:
    parts: list[Part] = []
    for piece in said(o.success_text, o):
        parts += [piece, Pause(o.chunk_delay_ms)]
    return whole(*parts)


def _reasoning_success(o: MockOptions) -> list[Part]:
    return whole(*thought(o.reasoning_text, o), *said(o.success_text, o))


def mock_call(o: MockOptions, number: int = 1) -> Call:
    """The call of the behaviours, its arguments in two halves."""
    half = len(o.tool_arguments) // 2
    fragments = (o.tool_arguments[:half], o.tool_arguments[half:])
    return Call(f"mock-call-{number}", o.tool_name, fragments)


def _tool_call_success(o: MockOptions) -> list[Part]:
    return whole(mock_call(o), reason="tool-calls")


def _partial_disconnect(o: MockOptions) -> list[Part]:
    return [Opening(), *said(o.partial_text, o), Pause(o.disconnect_delay_ms), Reset()]


def _keep_alive_comments(o: MockOptions) -> list[Part]:
    parts: list[Part] = []
    for piece in said(o.success_text, o):
        parts += [piece, Pause(o.chunk_delay_ms), b": keep-alive\n\n", Pause(o.chunk_delay_ms)]
    return [b": keep-alive\n\n", *whole(*parts)]


def _endless_keep_alive(o: MockOptions) -> list[Part]:
    beat: list[Part] = [b": keep-alive\n\n", Pause(o.chunk_delay_ms)]
    return [Opening(), *beat * 10_000]


def _empty_deltas(o: MockOptions) -> list[Part]:
    """Keeps alive with events that say nothing."""
    parts: list[Part] = []
    for piece in said(o.success_text, o):
        parts += [piece, Pause(o.chunk_delay_ms), Text(""), Pause(o.chunk_delay_ms)]
    return whole(*parts)


def _cut_short(reason: str) -> Behaviour:
    """Some text, and an ending that is no answer."""
    return _reply(lambda o: whole(*said(o.partial_text, o), reason=reason))


def _tool_call_then_text(o: MockOptions) -> list[Part]:
    call = Call("mock-call-1", o.tool_name, (o.tool_arguments,))
    return whole(call, *said(o.success_text, o), reason="tool-calls")


def _unicode_separators(o: MockOptions) -> list[Part]:
    return whole(Text("line\u2028paragraph\u2029next\x85tab\x0bfeed\x0c"))


def _split_utf8(d: Dialect, o: MockOptions) -> Plan:
    """Every character of several bytes is cut in the middle."""
    sent = streamed(d, whole(Text("héllo wörld 🏷 한국어")), o).sent()
    return Plan(steps=tuple(sent[at : at + 7] for at in range(0, len(sent), 7)))


def _sent(d: Dialect, o: MockOptions) -> bytes:
    return streamed(d, _success(o), o).sent()


def _json_error(d: Dialect, o: MockOptions) -> Plan:
    """A 200 whose body is an error, plainly."""
    body = d.error(Fault("server_error", "internal error"), o).steps
    return Plan(headers=JSON_HEADERS, steps=body)


def _html_page(d: Dialect, o: MockOptions) -> Plan:
    page = b"<!doctype html><html><head><title>Log in</title></head><body><p>Welcome to the WiFi.</p></body>"
    return Plan(headers={"content-type": "text/html"}, steps=(page,))


def _gateway_page(d: Dialect, o: MockOptions) -> Plan:
    page = (
        b"<html><head><title>502 Bad Gateway</title></head><body>"
        + b"<p>nginx</p>" * 3400
        + b"</body></html>"
    )
    return Plan(status=502, headers={"content-type": "text/html"}, steps=(page,))


def _redirect(d: Dialect, o: MockOptions) -> Plan:
    return Plan(status=307, headers={"location": "http://127.0.0.1:9/elsewhere"})


_FAULTS: dict[str, Behaviour] = {
    kind: _fault(kind)
    for kind in get_args(FaultKind)
    if kind not in ("overloaded", "permission", "not_found", "too_large")
}

COMMON: Mapping[str, Behaviour] = {
    "success": _reply(_success),
    "slow_success": _reply(_slow_success),
    "reasoning_success": _reply(_reasoning_success),
    "tool_call_success": _reply(_tool_call_success),
    "max_tokens": _cut_short("max-tokens"),
    "connection_reset": lambda d, o: Plan(status=0, steps=(Reset(),)),
    "stream_disconnect": lambda d, o: Plan(steps=(Pause(o.disconnect_delay_ms), Reset())),
    "partial_disconnect": _reply(_partial_disconnect),
    "empty": _reply(lambda o: whole()),
    "empty_body": lambda d, o: Plan(),
    "stream_eof": _reply(lambda o: [Opening()]),
    "partial_eof": _reply(lambda o: [Opening(), *said(o.partial_text, o)]),
    "stall": lambda d, o: Plan(steps=(Stall(),)),
    "malformed_json": lambda d, o: streamed(d, [Opening(), d.garbled, End()], o),
    "malformed_event": lambda d, o: streamed(d, [d.malformed, End()], o),
    "wrong_content_type": lambda d, o: Plan(headers=JSON_HEADERS, steps=tuple(d.steps(_success(o), o))),
    **_FAULTS,
    "no_content": lambda d, o: Plan(status=204, headers={}),
    "content_filter": _cut_short("refusal"),
    "unicode_separators": _reply(_unicode_separators),
    "split_utf8": _split_utf8,
    "keep_alive_comments": _reply(_keep_alive_comments),
    "endless_keep_alive": _reply(_endless_keep_alive),
    "empty_deltas": _reply(_empty_deltas),
    "crlf": lambda d, o: Plan(steps=(_sent(d, o).replace(b"\n", b"\r\n"),)),
    "byte_order_mark": lambda d, o: Plan(steps=(b"\xef\xbb\xbf", *d.steps(_success(o), o))),
    "json_error": _json_error,
    "html_page": _html_page,
    "gateway_page": _gateway_page,
    "redirect": _redirect,
    "missing_done": _reply(lambda o: _success(o)[:-1]),
    "done_without_blank_line": lambda d, o: Plan(steps=(_sent(d, o).rstrip(b"\n"),)),
    "tool_call_then_text": _reply(_tool_call_then_text),
}
"""What every dialect plays. Besides: `random`, and `connection_refused` (of the command, first only)."""

BEHAVIOURS: Mapping[str, Behaviour] = {**COMMON, **CHAT_QUIRKS}
"""What the chat-completions dialects play."""
ANTHROPIC_BEHAVIOURS: Mapping[str, Behaviour] = {**COMMON, **ANTHROPIC_QUIRKS}
ALL_BEHAVIOURS: tuple[str, ...] = tuple(dict.fromkeys((*BEHAVIOURS, *ANTHROPIC_BEHAVIOURS)))
"""The names of all, whatever the dialect."""


def behaviours(dialect: str) -> Mapping[str, Behaviour]:
    """What a dialect plays, by name."""
    return ANTHROPIC_BEHAVIOURS if dialect == "anthropic" else BEHAVIOURS
