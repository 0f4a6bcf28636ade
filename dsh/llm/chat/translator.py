"""The chat-completions wire, inwards: the events of a reply into chunks."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET

from dsh.llm.chat.event import WireChoice, WireToolCall, decode_event, usage_of
from dsh.llm.chat.tool_calls import ToolCallMerge
from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.transport.reply import SharedTexts, new_call_id
from dsh.llm.transport.sse import SseEvent
from dsh.llm.transport.translator import Failures
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

DONE = b"[DONE]"
MAX_SHOWN_PAYLOAD_CHARS = 120
MAX_CODE_CHARS = 64


class ChatTranslator:
    """Implements `Translator`. Every closing chunk waits for the end of the stream."""

    end_mark = "[DONE]"

    def __init__(self, failures: Failures, *, new_id: Callable[[], str] = new_call_id) -> None:
        self._failures = failures
        self._tools = ToolCallMerge(new_id)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._shared = SharedTexts()
        self._text_index = -1
        self._reasoning_index = -1
        self._blocks = 0
        self._usage: dict[str, Any] | None = None
        self._finish_reason: str | None = None

    def push(self, name: bytes, payload: bytes, out: list[Chunk]) -> bool:
        if payload[:1] == b"[" and payload.strip() == DONE:
            return True
        if name == b"error":
            raise self._failures.of_event(payload)
        if payload and not payload.isspace():
            self._event(payload, out)
        return False

    def is_whole(self, tail: SseEvent | None, out: list[Chunk]) -> bool:
        if tail is None:
            return False
        name, payload = tail
        if payload.strip() == DONE:
            return True
        if name == b"error" or _holds_error(payload):
            self.push(name, payload, out)
        return False

    def _event(self, payload: bytes, out: list[Chunk]) -> None:
        try:
            event = decode_event(payload)
        except ValueError as error:
            shown = self._failures.shown(payload[:2000].decode("utf-8", "replace"))[:MAX_SHOWN_PAYLOAD_CHARS]
            raise LlmError.of(
                "MALFORMED_RESPONSE", f"the stream holds an event that cannot be read: {shown!r}"
            ) from error
        if event.error:
            raise LlmError(self._failures.in_band(event.error))
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
                text = self._shared.of(delta.reasoning_content)
                self._reasoning.append(text)
                out.append(ReasoningDelta(self._reasoning_index, text))
            if delta.content:
                if self._text_index < 0:
                    self._text_index = self._open("text", out)
                text = self._shared.of(delta.content)
                self._text.append(text)
                out.append(TextDelta(self._text_index, text))
            for fragment in delta.tool_calls or ():
                self._tool_call(fragment, out)
        if type(choice.finish_reason) is str:
            self._finish_reason = choice.finish_reason

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
        shown = self._failures.shown(wire)
        code = re.sub(r"[^A-Z0-9]+", "_", shown.upper()).strip("_")
        if not 0 < len(code) <= MAX_CODE_CHARS:
            code = "UNKNOWN_FINISH_REASON"
        failure = LlmFailure(f"model stopped: {shown}", code)
        return {"kind": "error", "failure": failure.to_json()}


def _holds_error(payload: bytes) -> bool:
    try:
        return bool(decode_event(payload).error)
    except ValueError:
        return False
