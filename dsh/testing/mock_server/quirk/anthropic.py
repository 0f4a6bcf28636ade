"""What only the Messages wire knows: pings, a server's own blocks, usage in two places, errors as events."""

from collections.abc import Mapping
from typing import Any

from dsh.testing.mock_server.dialect.anthropic import PING, input_usage, signature, typed
from dsh.testing.mock_server.dialect.base import Behaviour, replying
from dsh.testing.mock_server.part import (
    Call,
    End,
    Fault,
    Opening,
    Part,
    Reasoning,
    Redacted,
    Text,
    Usage,
    said,
    thought,
    whole,
)
from dsh.testing.mock_server.plan import MockOptions, pieces


def _call(o: MockOptions) -> Call:
    return Call("mock-call-1", o.tool_name, (o.tool_arguments,))


def block(index: int, start: Mapping[str, Any], *deltas: Mapping[str, Any]) -> list[Part]:
    """One block as events, of whatever type."""
    begin = typed({"type": "content_block_start", "index": index, "content_block": start})
    rest = [typed({"type": "content_block_delta", "index": index, "delta": one}) for one in deltas]
    return [begin, *rest, typed({"type": "content_block_stop", "index": index})]


def text_block(index: int, o: MockOptions) -> list[Part]:
    deltas = [{"type": "text_delta", "text": piece} for piece in pieces(o.success_text, o.chunk_size)]
    return block(index, {"type": "text", "text": ""}, *deltas)


def _pings(o: MockOptions) -> list[Part]:
    parts: list[Part] = [PING, typed({"type": "news", "about": "nothing"})]
    for piece in said(o.success_text, o):
        parts += [piece, PING]
    return whole(*parts)


def _server_tool(o: MockOptions) -> list[Part]:
    """Blocks of a tool that the server runs by itself stand before the text."""
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    asked = {"type": "input_json_delta", "partial_json": '{"query":"dsh"}'}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    return whole(*block(0, use, asked), *block(1, found), *text_block(2, o))


def _text_in_start(o: MockOptions) -> list[Part]:
    return whole(*block(0, {"type": "text", "text": o.success_text}))


def _input_in_start(o: MockOptions) -> list[Part]:
    arguments = {"command": "echo mock", "description": "mock call"}
    use = {"type": "tool_use", "id": "mock-call-1", "name": o.tool_name, "input": arguments}
    return whole(*block(0, use), reason="tool-calls")


def _hidden_thinking(o: MockOptions) -> list[Part]:
    """Thinking that is signed but not shown."""
    start = {"type": "thinking", "thinking": "", "signature": ""}
    signed = {"type": "signature_delta", "signature": signature("")}
    return whole(*block(0, start, signed), *text_block(1, o))


def _unknown_delta(o: MockOptions) -> list[Part]:
    cited = {"type": "citations_delta", "citation": {"type": "char_location", "cited_text": "x"}}
    shown = {"type": "text_delta", "text": o.success_text}
    return whole(*block(0, {"type": "text", "text": ""}, cited, shown))


def _usage_at_end(o: MockOptions) -> list[Part]:
    """The input is counted with the output, and the last count holds."""
    usage = {**input_usage(Usage(uncached=30, cache_read=64, cache_write=6)), "output_tokens": 20}
    first: dict[str, Any] = {"stop_reason": None, "stop_sequence": None}
    early = typed({"type": "message_delta", "delta": first, "usage": {"output_tokens": 3}})
    return whole(*text_block(0, o), early, usage=usage)


def _signed_thought(o: MockOptions) -> list[Part]:
    return [*thought(o.reasoning_text, o), Redacted("bW9jaw=="), Reasoning("Go on."), _call(o)]


ANTHROPIC_QUIRKS: Mapping[str, Behaviour] = {
    "in_band_error": replying(lambda o: [Opening(), *said(o.partial_text, o), Fault("rate_limit")]),
    "in_band_error_first": replying(lambda o: [Fault("rate_limit")]),
    "error_after_call": replying(lambda o: [Opening(), _call(o), Fault("overloaded")]),
    "call_cut_off": replying(lambda o: [Opening(), _call(o)]),
    "pings": replying(_pings),
    "pause_turn": replying(lambda o: whole(*said(o.partial_text, o), reason="pause")),
    "window_exceeded": replying(lambda o: whole(*said(o.partial_text, o), reason="overflow")),
    "stop_sequence": replying(lambda o: whole(*said(o.success_text, o), reason="stop_sequence")),
    "malformed_usage": replying(
        lambda o: whole(*said(o.success_text, o), usage={"output_tokens": "x", "input_tokens": -3})
    ),
    "usage_at_end": replying(_usage_at_end),
    "no_message_start": replying(lambda o: whole(*said(o.success_text, o))[1:]),
    "thinking_then_call": replying(lambda o: whole(*_signed_thought(o), reason="tool-calls")),
    "redacted_thinking": replying(lambda o: whole(Redacted("bW9jaw=="), *said(o.success_text, o))),
    "hidden_thinking": replying(_hidden_thinking),
    "server_tool": replying(_server_tool),
    "text_in_start": replying(_text_in_start),
    "input_in_start": replying(_input_in_start),
    "unknown_delta": replying(_unknown_delta),
    "empty_text_block": replying(lambda o: whole(Text(""), _call(o), reason="tool-calls")),
    "never_finished": replying(lambda o: [Opening(), *text_block(0, o), End()]),
}
