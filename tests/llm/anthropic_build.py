"""Plain values for the tests of the Messages wire: events, messages with signatures, what comes of them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from dsh.llm.anthropic.body import request_body
from dsh.llm.anthropic.history import WireHistory
from dsh.llm.anthropic.route import AnthropicRoute
from dsh.llm.anthropic.translator import MessagesTranslator
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.session.chunk import Chunk
from dsh.session.message import Message, assistant_message, user_message
from tests.llm.build import PlainFailures

ROUTE, MODEL = "anthropic", "claude-sonnet-4-5"
SIGNED = {"type": "thinking", "signature": "sig"}
MARKER = {"type": "ephemeral"}
START = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}
STOP = {"type": "message_stop"}


def claude(
    *blocks: Mapping[str, Any],
    entries: Sequence[Any] | None = None,
    model: str = MODEL,
    provider: str = ROUTE,
    **state: Any,
) -> Message:
    """A reply of this route's model; `entries` become its replay state."""
    replay = None if entries is None else {"response": {"version": 1}, "blocks": list(entries), **state}
    return assistant_message(blocks, provider=provider, model=model, replay_state=replay)


def request(*messages: Message, config: Mapping[str, Any] | None = None, **fields: Any) -> LlmRequest:
    made = LlmCallConfig(**{"provider": ROUTE, "model": MODEL, **(config or {})})
    return LlmRequest(config=made, messages=messages or (user_message("hello"),), **fields)


def route(**changes: Any) -> AnthropicRoute:
    return AnthropicRoute(api_key_env="K", **changes)


def body(
    asked: LlmRequest, settings: AnthropicRoute | None = None, history: WireHistory | None = None
) -> dict[str, Any]:
    """The request body, read back."""
    raw = request_body(asked, settings or route(), history or WireHistory())
    value: dict[str, Any] = json.loads(raw)
    return value


def wire_messages(*messages: Message, model: str = MODEL) -> list[dict[str, Any]]:
    """The `messages` array, without cache markers."""
    members = WireHistory().members(messages, ROUTE, model, b"")
    value: list[dict[str, Any]] = json.loads(b"[" + b"".join(members) + b"]")
    return value


def events(*values: Mapping[str, Any] | bytes, window: int | None = None) -> list[Chunk]:
    """The chunks of a stream that ends as it should. Made-up call ids are `made-1`, `made-2`, …"""
    made = iter(range(1, 100))
    translator = MessagesTranslator(
        PlainFailures(), context_window=window, new_id=lambda: f"made-{next(made)}"
    )
    out: list[Chunk] = []
    for value in values:
        payload = value if isinstance(value, bytes) else json.dumps(value).encode()
        if translator.push(b"", payload, out):
            break
    return out + translator.finish()


def begins(index: int, kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": {"type": kind, **members}}


def adds(index: int, kind: str, **members: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}}


def ends(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def says(index: int, *pieces: str) -> list[dict[str, Any]]:
    """A whole text block."""
    deltas = [adds(index, "text_delta", text=piece) for piece in pieces]
    return [begins(index, "text", text=""), *deltas, ends(index)]


def thinks(index: int, text: str, signature: str = "sig") -> list[dict[str, Any]]:
    """A whole thinking block."""
    return [
        begins(index, "thinking", thinking="", signature=""),
        *([adds(index, "thinking_delta", thinking=text)] if text else []),
        adds(index, "signature_delta", signature=signature),
        ends(index),
    ]


def stopped(reason: str | None = "end_turn", **usage: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage or {"output_tokens": 9}}
