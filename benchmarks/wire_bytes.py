"""The bytes of whole replies in each wire format, made once."""

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: keep-alive\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
PIECE_BYTES = 4096
"""What one write holds: some twenty events, as a busy provider sends them."""
CALL_NAME = "bash"


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _framed(events: Iterable[bytes]) -> bytes:
    """The whole response: events grouped into pieces, each an HTTP chunk."""
    pieces, current = [], bytearray()
    for one in events:
        current += one
        if len(current) >= PIECE_BYTES:
            pieces.append(bytes(current))
            current.clear()
    pieces.append(bytes(current))
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces if p) + b"0\r\n\r\n"


# -- chat completions ------------------------------------------------------------------------------


def _chunk(choices: list[Any], usage: Any = None) -> bytes:
    payload = {"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1, "choices": choices}
    if usage is not None:
        payload["usage"] = usage
    return b"data: " + _compact(payload) + b"\n\n"


def _delta(delta: dict[str, Any], finish: str | None = None, usage: Any = None) -> bytes:
    return _chunk([{"index": 0, "delta": delta, "finish_reason": finish}], usage)


def _chat(finish: str, body: Iterable[bytes], *, is_trailing: bool) -> bytes:
    usage: dict[str, Any] = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    if is_trailing:
        end = [_delta({}, finish), _chunk([], {**usage, "prompt_tokens_details": {"cached_tokens": 0}})]
    else:
        end = [_delta({}, finish, usage)]
    return _framed([_delta({"role": "assistant", "content": ""}), *body, *end, b"data: [DONE]\n\n"])


def _chat_text(words: Iterable[str], *, is_trailing: bool) -> bytes:
    return _chat("stop", [_delta({"content": word}) for word in words], is_trailing=is_trailing)


def _chat_call(call_id: str, fragments: Iterable[str], *, is_trailing: bool) -> bytes:
    opening = {
        "index": 0,
        "id": call_id,
        "type": "function",
        "function": {"name": CALL_NAME, "arguments": ""},
    }
    body = [_delta({"tool_calls": [opening]})]
    body += [_delta({"tool_calls": [{"index": 0, "function": {"arguments": one}}]}) for one in fragments]
    return _chat("tool_calls", body, is_trailing=is_trailing)


# -- Anthropic Messages ----------------------------------------------------------------------------


def _typed(value: dict[str, Any]) -> bytes:
    return b"event: " + str(value["type"]).encode() + b"\ndata: " + _compact(value) + b"\n\n"


def _messages(stop: str, block: dict[str, Any], deltas: Iterable[dict[str, Any]]) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    started = {**message, "stop_reason": None, "usage": {"input_tokens": 100, "output_tokens": 1}}
    ended = {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 20}}
    return _framed(
        [
            _typed({"type": "message_start", "message": started}),
            _typed({"type": "content_block_start", "index": 0, "content_block": block}),
            *(_typed({"type": "content_block_delta", "index": 0, "delta": delta}) for delta in deltas),
            _typed({"type": "content_block_stop", "index": 0}),
            _typed({"type": "message_delta", **ended}),
            _typed({"type": "message_stop"}),
        ]
    )


def _messages_text(words: Iterable[str]) -> bytes:
    deltas = ({"type": "text_delta", "text": word} for word in words)
    return _messages("end_turn", {"type": "text", "text": ""}, deltas)


def _messages_call(call_id: str, fragments: Iterable[str]) -> bytes:
    block = {"type": "tool_use", "id": call_id, "name": CALL_NAME, "input": {}}
    deltas = ({"type": "input_json_delta", "partial_json": one} for one in fragments)
    return _messages("tool_use", block, deltas)


# -- replies by name -------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def text_reply(wire: str, deltas: int) -> bytes:
    """A reply of that many text deltas. `wire` is `deepseek`, `openai` or `anthropic`."""
    words = (f" tok{n % 997}" for n in range(deltas))
    if wire == "anthropic":
        return _messages_text(words)
    return _chat_text(words, is_trailing=wire == "openai")


@lru_cache(maxsize=64)
def call_reply(wire: str, number: int, fragments: int = 1) -> bytes:
    """One bash call, its arguments in that many fragments."""
    before, after = f'{{"command": "echo {number}", "description": "say a number', '"}'
    given = [before, *(f" w{n % 997}" for n in range(fragments - 1)), after]
    if wire == "anthropic":
        return _messages_call(f"call-{number}", given)
    return _chat_call(f"call-{number}", given, is_trailing=wire == "openai")
