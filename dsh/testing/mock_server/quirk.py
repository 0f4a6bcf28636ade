"""Behaviours that only one wire knows: how its servers misspell."""

from collections.abc import Callable, Mapping
from typing import Any

from dsh.testing.mock_server.dialect.anthropic import PING, typed
from dsh.testing.mock_server.dialect.base import Dialect, streamed
from dsh.testing.mock_server.dialect.chat import tool_call
from dsh.testing.mock_server.part import Call, End, Fault, Opening, Part, said, whole
from dsh.testing.mock_server.plan import MockOptions, Plan, pieces

Quirk = Callable[[Dialect, MockOptions], Plan]


def _reply(reply: Callable[[MockOptions], list[Part]]) -> Quirk:
    return lambda d, o: streamed(d, reply(o), o)


def _in_band_error(o: MockOptions) -> list[Part]:
    return [Opening(), *said(o.partial_text, o), Fault("rate_limit", "Rate limit"), End()]


def _malformed_usage(usage: Mapping[str, Any]) -> Quirk:
    return _reply(lambda o: whole(*said(o.success_text, o), usage=usage))


def _without_id(o: MockOptions) -> list[Part]:
    return whole(*tool_call(None, o.tool_name, (o.tool_arguments,)), reason="tool-calls")


def _without_index(o: MockOptions) -> list[Part]:
    first = tool_call("mock-call-1", o.tool_name, pieces(o.tool_arguments, 9), None)
    second = tool_call("mock-call-2", o.tool_name, pieces(o.tool_arguments, 9), None)
    return whole(*first, *second, reason="tool-calls")


CHAT_QUIRKS: Mapping[str, Quirk] = {
    "in_band_error": _reply(_in_band_error),
    "error_event": _reply(lambda o: [Opening(), b"event: error\ndata: the model is overloaded\n\n"]),
    "insufficient_resource": _reply(lambda o: whole(*said(o.partial_text, o), reason="resource")),
    "malformed_usage": _malformed_usage({"prompt_tokens": -3, "completion_tokens": "x"}),
    "tool_call_without_id": _reply(_without_id),
    "tool_calls_without_index": _reply(_without_index),
}


def _error_after_call(o: MockOptions) -> list[Part]:
    call = Call("mock-call-1", o.tool_name, (o.tool_arguments,))
    return [Opening(), call, Fault("overloaded")]


def _pings(o: MockOptions) -> list[Part]:
    parts: list[Part] = [PING, typed({"type": "news", "about": "nothing"})]
    for piece in said(o.success_text, o):
        parts += [piece, PING]
    return whole(*parts)


ANTHROPIC_QUIRKS: Mapping[str, Quirk] = {
    "in_band_error": _reply(lambda o: [Opening(), *said(o.partial_text, o), Fault("overloaded")]),
    "error_after_call": _reply(_error_after_call),
    "pings": _reply(_pings),
    "pause_turn": _reply(lambda o: whole(*said(o.partial_text, o), reason="pause")),
    "window_exceeded": _reply(lambda o: whole(*said(o.partial_text, o), reason="overflow")),
    "malformed_usage": _malformed_usage({"output_tokens": "x", "input_tokens": -3}),
}
