"""What only chat-completions servers get wrong: how they misspell calls, usage and errors."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from dsh.testing.mock_server.dialect.base import Behaviour, Dialect, replying, streamed
from dsh.testing.mock_server.dialect.chat import DONE, delta, tool_call
from dsh.testing.mock_server.dialect.sse import event
from dsh.testing.mock_server.part import End, Fault, Opening, Part, Text, said, whole
from dsh.testing.mock_server.plan import MockOptions, Plan, pieces

LEAKED = "<\uff5ctool\u2581calls\u2581begin\uff5c><\uff5ctool\u2581call\u2581begin\uff5c>function"
_CALL_ID = re.compile(rb'"id": ?"(mock-call-\d+)"')
USAGE: Mapping[str, Any] = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 64},
}


def _fragments(*entries: Mapping[str, Any]) -> bytes:
    """One delta with these entries of `tool_calls`."""
    return delta({"tool_calls": list(entries)})


def _opener(o: MockOptions, number: int, arguments: Any = "", **place: Any) -> dict[str, Any]:
    function = {"name": o.tool_name, "arguments": arguments}
    return {**place, "id": f"mock-call-{number}", "type": "function", "function": function}


def _more(text: Any, **place: Any) -> dict[str, Any]:
    return {**place, "function": {"arguments": text}}


def _calls(write: Callable[[MockOptions], list[bytes]], reason: str = "tool-calls") -> Behaviour:
    def played(dialect: Dialect, options: MockOptions) -> Plan:
        sent = write(options)
        issued = {name.decode(): "" for name in _CALL_ID.findall(b"".join(sent))}
        plan = streamed(dialect, whole(*sent, reason=reason))
        return msgspec.structs.replace(plan, calls=issued)

    return played


def _interleaved(o: MockOptions) -> list[bytes]:
    sent = [_fragments(_opener(o, 1, index=0)), _fragments(_opener(o, 2, index=1))]
    for piece in pieces(o.tool_arguments, 9):
        sent += [_fragments(_more(piece, index=0)), _fragments(_more(piece, index=1))]
    return sent


def _without_index(o: MockOptions) -> list[bytes]:
    parts = pieces(o.tool_arguments, 9)
    return [
        *tool_call("mock-call-1", o.tool_name, parts, None),
        *tool_call("mock-call-2", o.tool_name, parts, None),
    ]


def _same_index(o: MockOptions) -> list[bytes]:
    return [_fragments(_opener(o, number, o.tool_arguments, index=0)) for number in (1, 2)]


def _gapped_index(o: MockOptions) -> list[bytes]:
    return [_fragments(_opener(o, 1 + at // 3, o.tool_arguments, index=at)) for at in (0, 3)]


def _two_entries(o: MockOptions) -> list[bytes]:
    first, *rest = pieces(o.tool_arguments, 9)
    opening = _fragments(_opener(o, 1, index=0), _more(first, index=0))
    return [opening, *(_fragments(_more(piece, index=0)) for piece in rest)]


def _moving_index(o: MockOptions) -> list[bytes]:
    """The fragments after the opener carry a new index, and no id."""
    rest = enumerate(pieces(o.tool_arguments, 9), 1)
    return [_fragments(_opener(o, 1, index=0)), *(_fragments(_more(piece, index=at)) for at, piece in rest)]


def _late_name(o: MockOptions) -> list[bytes]:
    opening = {"index": 0, "id": "mock-call-1", "type": "function", "function": {"arguments": ""}}
    named = {"index": 0, "function": {"name": o.tool_name, "arguments": o.tool_arguments}}
    return [_fragments(opening), _fragments(named)]


def _null_later(o: MockOptions) -> list[bytes]:
    """Null and empty ids and names in later fragments."""
    half = len(o.tool_arguments) // 2
    nulls = {"index": 0, "id": None, "function": {"name": None, "arguments": o.tool_arguments[:half]}}
    blanks = {"index": 0, "id": "", "function": {"name": "", "arguments": o.tool_arguments[half:]}}
    return [_fragments(_opener(o, 1, index=0)), _fragments(nulls), _fragments(blanks)]


def _repeated_id(o: MockOptions) -> list[bytes]:
    return [_fragments(_opener(o, 1, piece, index=0)) for piece in pieces(o.tool_arguments, 9)]


def _same_id(o: MockOptions) -> list[bytes]:
    return [_fragments(_opener(o, 1, o.tool_arguments, index=at)) for at in (0, 1)]


def _object_arguments(o: MockOptions) -> list[bytes]:
    return [_fragments(_opener(o, 1, {"command": "echo mock", "description": "mock call"}, index=0))]


def _usage(*parts: bytes, on_finish: Any = None) -> Behaviour:
    """A plain reply that tells its usage in these places."""

    def reply(o: MockOptions) -> list[Part]:
        return [Opening(), *said(o.success_text, o), delta({"content": ""}, "stop", on_finish), *parts, DONE]

    return replying(reply)


def _trailing(usage: Any) -> bytes:
    return event({"id": "mock-1", "object": "chat.completion.chunk", "choices": [], "usage": usage})


def _usage_everywhere(o: MockOptions) -> list[Part]:
    """Null until the end, a number in both last places."""
    texts = [delta({"content": piece}) for piece in pieces(o.success_text, o.chunk_size)]
    nulls = [text.replace(b'"choices"', b'"usage":null,"choices"', 1) for text in texts]
    return [Opening(), *nulls, delta({}, "stop", USAGE), _trailing(USAGE), DONE]


def _several_choices(o: MockOptions) -> list[Part]:
    choices = [
        {"index": 1, "delta": {"content": "the other"}, "finish_reason": None},
        {"index": 0, "delta": {"content": o.success_text}, "finish_reason": None},
    ]
    return whole(event({"id": "mock-1", "object": "chat.completion.chunk", "choices": choices}))


def _error_with_choices(o: MockOptions) -> list[Part]:
    error = {"message": "Rate limit", "type": "rate_limit_error", "code": "429"}
    return [Opening(), *said(o.partial_text, o), event({"choices": [], "error": error}), DONE]


def _malformed_usage(o: MockOptions) -> list[Part]:
    usage = {"prompt_tokens": -3, "completion_tokens": "x"}
    return [Opening(), *said(o.success_text, o), delta({"content": ""}, "stop", usage), End()]


def _in_band(o: MockOptions) -> list[Part]:
    return [Opening(), *said(o.partial_text, o), Fault("rate_limit", "Rate limit"), End()]


def _null_content(o: MockOptions) -> list[Part]:
    nulls: dict[str, Any] = {
        "content": None,
        "reasoning_content": None,
        "reasoning": None,
        "tool_calls": None,
    }
    return whole(delta(nulls), *said(o.success_text, o), delta(nulls))


CHAT_QUIRKS: Mapping[str, Behaviour] = {
    "in_band_error": replying(_in_band),
    "in_band_error_first": replying(lambda o: [Fault("rate_limit", "Rate limit")]),
    "in_band_error_with_choices": replying(_error_with_choices),
    "error_event": replying(lambda o: [Opening(), b"event: error\ndata: the model is overloaded\n\n"]),
    "insufficient_resource": replying(lambda o: whole(*said(o.partial_text, o), reason="resource")),
    "malformed_usage": replying(_malformed_usage),
    "usage_trailing": _usage(_trailing(USAGE)),
    "usage_everywhere": replying(_usage_everywhere),
    "null_event": replying(lambda o: [Opening(), b"data: null\n\n", End()]),
    "null_content": replying(_null_content),
    "several_choices": replying(_several_choices),
    "never_finished": replying(lambda o: [Opening(), *said(o.success_text, o), End()]),
    "bytes_after_done": replying(lambda o: [*whole(*said(o.success_text, o)), b"data: {not-json\n\n"]),
    "leaked_tool_calls": replying(
        lambda o: whole(Text(LEAKED), Text(f"<\uff5ctool\u2581sep\uff5c>{o.tool_name}"))
    ),
    "finish_without_calls": replying(lambda o: whole(reason="tool-calls")),
    "tool_call_without_id": _calls(lambda o: tool_call(None, o.tool_name, (o.tool_arguments,))),
    "tool_calls_without_index": _calls(_without_index),
    "tool_calls_interleaved": _calls(_interleaved),
    "tool_calls_same_index": _calls(_same_index),
    "tool_calls_gapped_index": _calls(_gapped_index),
    "tool_calls_same_id": _calls(_same_id),
    "tool_call_two_entries": _calls(_two_entries),
    "tool_call_moving_index": _calls(_moving_index),
    "tool_call_late_name": _calls(_late_name),
    "tool_call_null_later": _calls(_null_later),
    "tool_call_repeated_id": _calls(_repeated_id),
    "tool_call_object_arguments": _calls(_object_arguments),
    "tool_call_and_stop": _calls(
        lambda o: tool_call("mock-call-1", o.tool_name, (o.tool_arguments,)), "stop"
    ),
}
