"""The chat-completions wire, outwards: messages and tools as the members of a request body.

Shared by every adapter that speaks this format; what differs between servers is decided by the adapter.
"""

from collections.abc import Sequence
from typing import Any

from dsh.llm.failure import LlmError
from dsh.llm.memo import Seen
from dsh.llm.transport.body import encode_wire
from dsh.session.message import Block, Message, ToolSchema

NO_OUTPUT = "(no output)"


def wire_messages(system: str | None, messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The `messages` array. That of a longer history begins with that of a shorter one.

    Raises:
        LlmError: `UNSUPPORTED_CONTENT`, a message holds an image.
    """
    wire: list[dict[str, Any]] = []
    if system:
        wire.append({"role": "system", "content": system})
    for message in messages:
        role = message["role"]
        if role == "assistant":
            wire.append(_assistant(message))
        elif role == "system":
            wire.append({"role": "system", "content": _text(message["content"])})
        else:
            _user(message, wire)
    return wire


class WireHistory:
    """The `messages` array of one conversation as JSON. State: the text of the messages so far."""

    def __init__(self) -> None:
        self._seen = Seen()
        self._text = bytearray()

    def members(self, system: str | None, messages: tuple[Message, ...]) -> tuple[bytes, bytearray]:
        """The members of the array, compact in UTF-8: the system text, and the messages, which are not the
        caller's to keep. Only what is new is put into words again.

        Raises:
            LlmError: `UNSUPPORTED_CONTENT`, a message holds an image.
        """
        count = self._seen.count(messages)
        added = _members(wire_messages(None, messages[count:]))
        if not count:
            self._text.clear()
        elif added:
            self._text += b","
        self._text += added
        self._seen.note(messages)
        head = _members(wire_messages(system, ()))
        return head + b"," if head and self._text else head, self._text


def _members(items: list[dict[str, Any]]) -> bytes:
    """The members of a JSON array, without its brackets."""
    return encode_wire(items)[1:-1]


def wire_tools(tools: Sequence[ToolSchema]) -> list[dict[str, Any]]:
    """The `tools` array."""
    return [
        {
            "type": "function",
            "function": tool.to_json(),
        }
        for tool in tools
    ]


def _user(message: Message, wire: list[dict[str, Any]]) -> None:
    results = [block for block in message["content"] if block["type"] == "tool-result"]
    text = _text(message["content"])
    if text or not results:
        wire.append({"role": "user", "content": text})
    for result in results:
        content = _text(result["content"]) or NO_OUTPUT
        wire.append({"role": "tool", "tool_call_id": result["toolCallId"], "content": content})


def _assistant(message: Message) -> dict[str, Any]:
    blocks = message["content"]
    wire: dict[str, Any] = {"role": "assistant", "content": _text(blocks)}
    if reasoning := "".join(block["text"] for block in blocks if block["type"] == "reasoning"):
        wire["reasoning_content"] = reasoning
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": block["arguments"]},
        }
        for block in blocks
        if block["type"] == "tool-call"
    ]
    if calls:
        wire["tool_calls"] = calls
    return wire


def _text(blocks: Sequence[Block]) -> str:
    """The text of blocks, joined without anything between; unknown kinds are skipped."""
    pieces = []
    for block in blocks:
        if block["type"] == "text":
            pieces.append(block["text"])
        elif block["type"] == "image":
            raise LlmError.of(
                "UNSUPPORTED_CONTENT", "the history holds an image, and this model takes text only"
            )
    return "".join(pieces)
