"""The behaviours of the mock model server by name: how any server answers, stalls and breaks off.

Each is written once, in parts, and put on the wire by the dialect of the request. The package `quirk` holds
the refusals, the framings, and what only one wire can get wrong.
"""

from collections.abc import Callable, Mapping

from dsh.testing.mock_server.dialect.base import Behaviour, Dialect, replying, streamed
from dsh.testing.mock_server.part import (
    Call,
    End,
    Opening,
    Part,
    Text,
    Usage,
    said,
    thought,
    whole,
)
from dsh.testing.mock_server.plan import MockOptions, Pause, Plan, Reset, Stall
from dsh.testing.mock_server.quirk.anthropic import ANTHROPIC_QUIRKS
from dsh.testing.mock_server.quirk.chat import CHAT_QUIRKS
from dsh.testing.mock_server.quirk.error import ERRORS
from dsh.testing.mock_server.quirk.framing import FRAMINGS

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
WINDOW_TOKENS = 100_000_000
"""More than any model reads."""


def _success(o: MockOptions) -> list[Part]:
    return whole(*said(o.success_text, o))


def _slow_success(o: MockOptions) -> list[Part]:
    parts: list[Part] = []
    for piece in said(o.success_text, o):
        parts += [piece, Pause(o.chunk_delay_ms)]
    return whole(*parts)


def _reasoning_success(o: MockOptions) -> list[Part]:
    used = Usage(reasoning=8)
    return whole(*thought(o.reasoning_text, o), *said(o.success_text, o), usage=used)


def _call(o: MockOptions, *fragments: str, number: int = 1) -> Call:
    """The call of the behaviours: its arguments in these fragments, or in two halves."""
    half = len(o.tool_arguments) // 2
    halves = (o.tool_arguments[:half], o.tool_arguments[half:])
    return Call(f"mock-call-{number}", o.tool_name, fragments or halves)


def _calling(parts: Callable[[MockOptions], list[Part]]) -> Behaviour:
    """A reply with calls."""
    return replying(lambda o: whole(*parts(o), reason="tool-calls"))


def _partial_disconnect(o: MockOptions) -> list[Part]:
    return [Opening(), *said(o.partial_text, o), Pause(o.disconnect_delay_ms), Reset()]


def _call_disconnect(o: MockOptions) -> list[Part]:
    """A call that is whole, and no end."""
    return [Opening(), _call(o), Pause(o.disconnect_delay_ms), Reset()]


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
    return replying(lambda o: whole(*said(o.partial_text, o), reason=reason))


def _partial_event(d: Dialect, o: MockOptions) -> Plan:
    """The body ends in the middle of an event, in good order."""
    sent = streamed(d, [Opening(), *said(o.partial_text, o)]).sent()
    return Plan(steps=(sent[:-9],))


COMMON: Mapping[str, Behaviour] = {
    "success": replying(_success),
    "slow_success": replying(_slow_success),
    "reasoning_success": replying(_reasoning_success),
    "reasoning_only": replying(lambda o: whole(*thought(o.reasoning_text, o))),
    "reasoning_tool_call": _calling(lambda o: [*thought(o.reasoning_text, o), _call(o)]),
    "tool_call_success": _calling(lambda o: [_call(o)]),
    "tool_call_at_once": _calling(lambda o: [_call(o, o.tool_arguments)]),
    "tool_call_without_arguments": _calling(lambda o: [Call("mock-call-1", o.tool_name, ())]),
    "tool_call_empty_fragments": _calling(lambda o: [_call(o, "", "", "{}")]),
    "tool_call_bad_arguments": _calling(lambda o: [_call(o, '{"command": ', "nope")]),
    "parallel_tool_calls": _calling(lambda o: [_call(o, number=number) for number in (1, 2, 3)]),
    "tool_call_then_text": _calling(lambda o: [_call(o, o.tool_arguments), *said(o.success_text, o)]),
    "max_tokens": _cut_short("max-tokens"),
    "content_filter": _cut_short("refusal"),
    "unknown_finish": _cut_short("tired"),
    "overflow_by_length": replying(lambda o: whole(reason="max-tokens", usage=Usage(output=0))),
    "overflow_by_usage": replying(
        lambda o: whole(*said(o.success_text, o), usage=Usage(uncached=WINDOW_TOKENS))
    ),
    "usage_never": replying(lambda o: whole(*said(o.success_text, o), usage=None)),
    "connection_reset": lambda d, o: Plan(status=0, steps=(Reset(),)),
    "stream_disconnect": lambda d, o: Plan(steps=(Pause(o.disconnect_delay_ms), Reset())),
    "partial_disconnect": replying(_partial_disconnect),
    "call_disconnect": replying(_call_disconnect),
    "empty": replying(lambda o: whole()),
    "empty_body": lambda d, o: Plan(),
    "no_content": lambda d, o: Plan(status=204, headers={}),
    "stream_eof": replying(lambda o: [Opening()]),
    "partial_eof": replying(lambda o: [Opening(), *said(o.partial_text, o)]),
    "partial_event_eof": _partial_event,
    "missing_done": replying(lambda o: _success(o)[:-1]),
    "silent": lambda d, o: Plan(status=0, steps=(Stall(),)),
    "stall": lambda d, o: Plan(steps=(Stall(),)),
    "stall_after_text": replying(lambda o: [Opening(), *said(o.partial_text, o), Stall()]),
    "endless_keep_alive": replying(_endless_keep_alive),
    "empty_deltas": replying(_empty_deltas),
    "malformed_json": lambda d, o: streamed(d, [Opening(), d.garbled, End()]),
    "malformed_event": lambda d, o: streamed(d, [d.malformed, End()]),
    **ERRORS,
    **FRAMINGS,
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
