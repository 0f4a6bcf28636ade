"""The chat-completions wire, inwards: the events of a reply into chunks."""

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from dsh.llm.chat.event import WireChoice, WireToolCall, decode_event, usage_of
from dsh.llm.chat.tool_calls import ToolCallMerge
from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.transport.reply import SharedTexts, new_call_id
from dsh.llm.transport.sse import SseEvent
from dsh.llm.transport.translator import Failures, unreadable
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
MAX_CODE_CHARS = 64

_USUAL_REASONS = (None, "stop", "tool_calls", "length")
_SIGNS_OF_CALLS = ("<|", "<\uff5c", "DSML", "tool_call", "<function", "[TOOL_CALLS]")
_LEAKED = "the model wrote a tool call as text, in markup that the server did not turn into a call"


class ReplyRules(msgspec.Struct, frozen=True, kw_only=True):
    """What a route makes of replies that servers end in different ways."""

    done_optional: bool = False
    """A finish reason ends a reply too, not `[DONE]` alone."""
    detect_leaked_calls: bool = True
    """A reply whose text is a tool call in the model's own markup is a failed attempt."""
    detect_overflow: bool = False
    """A reply that says by its figures that the request was too long is a failed attempt."""
    context_window: int | None = None
    """In tokens, where it is known for certain."""


USUAL = ReplyRules()


class ChatTranslator:
    """Implements `Translator`. Every closing chunk waits for the end of the stream."""

    end_mark = "[DONE]"

    def __init__(
        self,
        failures: Failures,
        *,
        new_id: Callable[[], str] = new_call_id,
        rules: ReplyRules = USUAL,
    ) -> None:
        self._failures = failures
        self._rules = rules
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
        if tail is not None:
            name, payload = tail
            if payload.strip() == DONE:
                return True
            if name == b"error" or _can_be_read(payload, error=not self._rules.done_optional):
                self.push(name, payload, out)
        return self._rules.done_optional and self._finish_reason is not None

    def _event(self, payload: bytes, out: list[Chunk]) -> None:
        try:
            event = decode_event(payload)
        except ValueError as error:
            raise unreadable(self._failures, payload) from error
        if event.error:
            raise LlmError(self._failures.in_band(event.error))
        for choice in event.choices or ():
            if not choice.index:
                self._choice(choice, out)
        if event.usage is not None and (usage := usage_of(event.usage)) is not None:
            self._usage = usage

    def _choice(self, choice: WireChoice, out: list[Chunk]) -> None:
        if choice.error:
            raise LlmError(self._failures.in_band(choice.error))
        delta = choice.delta
        if delta is not None:
            reasoning = delta.reasoning_content or delta.reasoning
            if reasoning and type(reasoning) is str:
                if self._reasoning_index < 0:
                    self._reasoning_index = self._open("reasoning", out)
                text = self._shared.of(reasoning)
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
        text, reasoning = "".join(self._text), "".join(self._reasoning)
        told: list[Chunk] = [] if self._usage is None else [UsageChunk(self._usage)]
        if (failure := self._no_reply(text, reasoning)) is not None:
            return [*told, Finish({"kind": "error", "failure": failure.to_json()})]
        ends: dict[int, Mapping[str, Any]] = {}
        if self._reasoning_index >= 0:
            ends[self._reasoning_index] = {"type": "reasoning", "text": reasoning}
        if self._text_index >= 0:
            ends[self._text_index] = {"type": "text", "text": text}
        for call in self._tools.calls:
            arguments = "".join(call.arguments)
            ends[call.block] = {
                "type": "tool-call",
                "id": call.call_id,
                "name": call.name,
                "arguments": arguments,
            }
        closed = [BlockEnd(index, dict(ends[index])) for index in sorted(ends)]
        return [*closed, *told, Finish(self._reason())]

    def _no_reply(self, text: str, reasoning: str) -> LlmFailure | None:
        """What a whole and well-formed reply is a sign of, where it is none. Its blocks then stay open."""
        rules, usage = self._rules, self._usage or {}
        if rules.detect_overflow:
            taken = sum(usage.get(name, 0) for name in ("inputTokens", "cacheReadTokens"))
            beyond = rules.context_window is not None and taken > rules.context_window
            no_room = self._finish_reason == "length" and not self._blocks and not usage.get("outputTokens")
            if beyond or no_room:
                return LlmFailure(_overflow(taken, rules.context_window), "CONTEXT_WINDOW_EXCEEDED")
        is_usual = not self._tools.calls and self._finish_reason in _USUAL_REASONS
        if rules.detect_leaked_calls and is_usual and holds_leaked_call(text if text.strip() else reasoning):
            return LlmFailure(_LEAKED, "MALFORMED_RESPONSE")
        return None

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


def _can_be_read(payload: bytes, *, error: bool) -> bool:
    """Whether a payload is an event, and an error where that is asked for."""
    try:
        return bool(decode_event(payload).error) or not error
    except ValueError:
        return False


def holds_leaked_call(text: str) -> bool:
    """Whether a reply's text is a tool call in markup; what judges it is loaded where there may be one."""
    if not any(sign in text for sign in _SIGNS_OF_CALLS):
        return False
    from dsh.llm.chat.leaked import is_leaked_call

    return is_leaked_call(text)


def _overflow(taken: int, window: int | None) -> str:
    if window is not None and taken > window:
        return f"the request took {taken} tokens, more than the model's window of {window}"
    return "the request left the model no room to answer: the reply ended at its length limit, empty"
