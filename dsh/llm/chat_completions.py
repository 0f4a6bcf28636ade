"""The chat-completions wire: messages into a request body, the stream of events into chunks.

Shared by every adapter that speaks this format; what differs between servers is decided by the adapter.
"""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from dsh.llm.chat_wire import WireChoice, WireToolCall, decode_event, usage_of
from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.memo import Seen
from dsh.llm.tool_call_merge import ToolCallMerge
from dsh.session.chunk import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
)
from dsh.session.message import Block, Message, ToolSchema
from dsh.session.value import clean, encode

NO_OUTPUT = "(no output)"
MAX_SHOWN_PAYLOAD_CHARS = 120
MAX_CODE_CHARS = 64
MAX_SHARED_CHARS = 24
MAX_SHARED_TEXTS = 4096


def new_call_id() -> str:
    """An id for a tool call whose server gave none, or one that it had given before."""
    return f"call_{uuid.uuid4().hex[:24]}"


# -- request -------------------------------------------------------------------------------------


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


def encode_wire(value: Any) -> bytes:
    """Compact JSON in UTF-8. Half a surrogate pair, which no provider takes, becomes U+FFFD."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return encode(clean(value))


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


# -- response ------------------------------------------------------------------------------------


class ChatTranslator:
    """Events of one reply into chunks. State: the open blocks, the last usage and finish reason.

    Every closing chunk waits for `finish`, which the caller calls when the stream has ended as it should;
    a reply that breaks off leaves its blocks open.
    """

    def __init__(
        self,
        on_error: Callable[[Any], LlmFailure],
        *,
        shown: Callable[[str], str],
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        """
        Args:
            on_error: classifies an error object that came within the stream.
            shown: makes the server's text fit for a message, without keys.
        """
        self._on_error = on_error
        self._shown = shown
        self._tools = ToolCallMerge(new_id)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._texts: dict[str, str] = {}
        self._text_index = -1
        self._reasoning_index = -1
        self._blocks = 0
        self._usage: dict[str, Any] | None = None
        self._finish_reason: str | None = None

    def push(self, payload: bytes, out: list[Chunk]) -> None:
        """Translate one event's data, appending what it yields.

        Raises:
            LlmError: `MALFORMED_RESPONSE`, or what the event itself reports.
        """
        try:
            event = decode_event(payload)
        except ValueError as error:
            shown = self._shown(payload[:2000].decode("utf-8", "replace"))[:MAX_SHOWN_PAYLOAD_CHARS]
            raise LlmError.of(
                "MALFORMED_RESPONSE", f"the stream holds an event that cannot be read: {shown!r}"
            ) from error
        if event.error:
            raise LlmError(self._on_error(event.error))
        for choice in event.choices or ():
            if not choice.index:
                self._choice(choice, out)
        if event.usage is not None and (usage := usage_of(event.usage)) is not None:
            self._usage = usage

    def _choice(self, choice: WireChoice, out: list[Chunk]) -> None:
        delta = choice.delta
        if delta is not None:
            if delta.reasoning_content:
                if self._reasoning_index < 0:
                    self._reasoning_index = self._open("reasoning", out)
                text = self._shared(delta.reasoning_content)
                self._reasoning.append(text)
                out.append(ReasoningDelta(self._reasoning_index, text))
            if delta.content:
                if self._text_index < 0:
                    self._text_index = self._open("text", out)
                text = self._shared(delta.content)
                self._text.append(text)
                out.append(TextDelta(self._text_index, text))
            for fragment in delta.tool_calls or ():
                self._tool_call(fragment, out)
        if type(choice.finish_reason) is str:
            self._finish_reason = choice.finish_reason

    def _shared(self, text: str) -> str:
        """One string for equal short deltas, of which a long reply has many: the log keeps every one."""
        if len(text) > MAX_SHARED_CHARS:
            return text
        if len(self._texts) >= MAX_SHARED_TEXTS:
            self._texts.clear()
        return self._texts.setdefault(text, text)

    def _tool_call(self, fragment: WireToolCall, out: list[Chunk]) -> None:
        call, text, is_new = self._tools.take(fragment, self._blocks)
        if is_new:
            self._open("tool-call", out)
        named = fragment.function is not None and fragment.function.name
        out.append(ToolCallDelta(call.block, call.call_id, call.name if named else UNSET, text))

    def _open(self, block_type: str, out: list[Chunk]) -> int:
        index = self._blocks
        self._blocks += 1
        out.append(BlockStart(index, block_type))
        return index

    def finish(self) -> list[Chunk]:
        """The closing chunks: the blocks in order, the usage, and why the reply ended."""
        ends: dict[int, Mapping[str, Any]] = {}
        if self._reasoning_index >= 0:
            ends[self._reasoning_index] = {"type": "reasoning", "text": "".join(self._reasoning)}
        if self._text_index >= 0:
            ends[self._text_index] = {"type": "text", "text": "".join(self._text)}
        for call in self._tools.calls:
            arguments = "".join(call.arguments)
            ends[call.block] = {
                "type": "tool-call",
                "id": call.call_id,
                "name": call.name,
                "arguments": arguments,
            }
        out: list[Chunk] = [BlockEnd(index, dict(ends[index])) for index in sorted(ends)]
        if self._usage is not None:
            out.append(UsageChunk(self._usage))
        out.append(Finish(self._reason()))
        return out

    def _reason(self) -> dict[str, Any]:
        wire = self._finish_reason
        if wire is None or wire in ("stop", "tool_calls"):
            if self._blocks == 0:
                failure = LlmFailure("the model's reply is empty", "EMPTY_RESPONSE")
                return {"kind": "error", "failure": failure.to_json()}
            return {"kind": "tool-calls" if wire == "tool_calls" else "stop"}
        if wire == "length":
            return {"kind": "max-tokens"}
        shown = self._shown(wire)
        code = re.sub(r"[^A-Z0-9]+", "_", shown.upper()).strip("_")
        if not 0 < len(code) <= MAX_CODE_CHARS:
            code = "UNKNOWN_FINISH_REASON"
        failure = LlmFailure(f"model stopped: {shown}", code)
        return {"kind": "error", "failure": failure.to_json()}
