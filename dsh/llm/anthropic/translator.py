"""The Messages wire, inwards: the events of a reply into chunks."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET

from dsh.llm.anthropic.ending import finish_reason
from dsh.llm.anthropic.event import WireBlock, WireDelta, WireEvent, decode_event, merge_usage, usage_of
from dsh.llm.anthropic.replay import replay_state
from dsh.llm.failure import LlmError
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

_DELTAS = {
    "text_delta": "text",
    "thinking_delta": "reasoning",
    "signature_delta": "reasoning",
    "input_json_delta": "tool-call",
}
"""What kind of block a delta belongs to; other deltas say nothing that is kept."""


class _Block:
    """One block while it arrives."""

    __slots__ = ("call_id", "data", "given", "index", "kind", "name", "pieces", "signature")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        """`text`, `reasoning`, `tool-call`; empty for a block of the server's own that is passed over."""
        self.index = -1
        """Among the blocks of the reply; -1 as long as there is nothing in it."""
        self.pieces: list[str] = []
        self.signature = ""
        self.data = ""
        """Thinking that only the provider can read."""
        self.call_id = ""
        self.name = ""
        self.given: Any = None
        """Arguments that came whole with the block's start."""

    def entry(self) -> dict[str, Any] | None:
        """What its wire wants to see again of it."""
        if self.data:
            return {"type": "redacted_thinking", "data": self.data}
        return {"type": "thinking", "signature": self.signature} if self.signature else None

    def block(self) -> dict[str, Any]:
        text = "".join(self.pieces)
        if self.kind == "tool-call":
            return {"type": "tool-call", "id": self.call_id, "name": self.name, "arguments": text}
        return {"type": self.kind, "text": text}


class MessagesTranslator:
    """Implements `Translator`. A block ends where the wire ends it; usage and finish wait for the end."""

    end_mark = "message_stop"

    def __init__(
        self,
        failures: Failures,
        *,
        context_window: int | None = None,
        behind: str | None = None,
        new_id: Callable[[], str] = new_call_id,
    ) -> None:
        """
        Args:
            context_window: of the model in tokens, where it is known: a prompt that is reported to be larger
                was not read whole.
            behind: what the reply is said behind, for its replay state.
        """
        self._behind = behind
        self._failures = failures
        self._window = context_window
        self._new_id = new_id
        self._shared = SharedTexts()
        self._arriving: dict[int, _Block] = {}
        self._blocks: list[_Block] = []
        self._held: list[_Block] = []
        """Thinking that was signed but not shown. It counts once something follows it."""
        self._ids: set[str] = set()
        self._usage: dict[str, int] = {}
        self._stop_reason: str | None = None
        self._stop_details: Any = None

    @property
    def usage(self) -> dict[str, Any] | None:
        """What was reported so far; None before anything was."""
        return usage_of(self._usage)

    def push(self, name: bytes, payload: bytes, out: list[Chunk]) -> bool:
        if not payload or payload.isspace() or (payload[:1] == b"[" and payload.strip() == b"[DONE]"):
            return False
        if name == b"error":
            raise self._failures.of_event(payload)
        try:
            event = decode_event(payload)
        except ValueError as error:
            raise unreadable(self._failures, payload) from error
        kind = event.type or name.decode("utf-8", "replace")
        if kind == "content_block_delta":
            if event.delta is not None:
                self._delta(event.index, event.delta, out)
        elif kind == "message_stop":
            return True
        elif kind == "error" or event.error:
            raise self._failures.of_event(payload)
        else:
            self._other(kind, event, out)
        return False

    def is_whole(self, tail: SseEvent | None, out: list[Chunk]) -> bool:
        if tail is None:
            return False
        name, payload = tail
        try:
            kind = decode_event(payload).type
        except ValueError:
            kind = ""
        if kind in ("message_stop", "error") or name == b"error":
            return self.push(name, payload, out)
        return False

    def finish(self) -> list[Chunk]:
        out: list[Chunk] = []
        for index in sorted(self._arriving):
            self._close(index, out)
        if (usage := self.usage) is not None:
            out.append(UsageChunk(usage))
        reason = finish_reason(
            self._stop_reason,
            shown=self._failures.shown,
            usage=self._usage,
            window=self._window,
            is_empty=not self._blocks,
            details=self._stop_details,
        )
        entries = [block.entry() for block in self._blocks]
        state = None if reason["kind"] == "error" else replay_state(entries, self._behind)
        out.append(Finish(reason, UNSET if state is None else state))
        return out

    # -- events ------------------------------------------------------------------------------------

    def _other(self, kind: str, event: WireEvent, out: list[Chunk]) -> None:
        if kind == "content_block_start":
            if event.index in self._arriving:
                self._close(event.index, out)
            self._arriving[event.index] = self._started(event.content_block or WireBlock(), out)
        elif kind == "content_block_stop":
            if event.index in self._arriving:
                self._close(event.index, out)
        elif kind == "message_start":
            merge_usage(self._usage, event.usage if event.message is None else event.message.usage)
        elif kind == "message_delta":
            merge_usage(self._usage, event.usage)
            if event.delta is not None and isinstance(event.delta.stop_reason, str):
                self._stop_reason = event.delta.stop_reason
                self._stop_details = event.delta.stop_details

    def _started(self, wire: WireBlock, out: list[Chunk]) -> _Block:
        if wire.type == "text":
            block = _Block("text")
            self._text(block, wire.text, out)
        elif wire.type == "thinking":
            block = _Block("reasoning")
            self._text(block, wire.thinking, out)
            block.signature = wire.signature or ""
        elif wire.type == "redacted_thinking":
            block = _Block("reasoning")
            block.data = wire.data or ""
            self._open(block, out)
        elif wire.type == "tool_use":
            block = _Block("tool-call")
            block.name = wire.name or ""
            block.call_id = wire.id if wire.id and wire.id not in self._ids else self._new_id()
            block.given = wire.input
            self._ids.add(block.call_id)
            self._open(block, out)
            out.append(ToolCallDelta(block.index, block.call_id, block.name, ""))
        else:
            block = _Block("")
        return block

    def _delta(self, at: int, delta: WireDelta, out: list[Chunk]) -> None:
        kind = _DELTAS.get(delta.type)
        if kind is None:
            return
        block = self._arriving.get(at)
        if block is None and kind != "tool-call":
            block = self._arriving[at] = _Block(kind)  # a server that opens no blocks
        if block is None or (block.kind and block.kind != kind):
            held = f"a block of kind {block.kind}" if block is not None else "no block"
            raise LlmError.of(
                "MALFORMED_RESPONSE",
                f"the stream holds a {delta.type} for block {at}, and there is {held}",
            )
        if not block.kind:
            return
        if kind == "text":
            self._text(block, delta.text, out)
        elif kind == "reasoning":
            self._text(block, delta.thinking, out)
            block.signature += delta.signature or ""
        elif delta.partial_json:
            self._arguments(block, self._shared.of(delta.partial_json), out)

    def _text(self, block: _Block, text: str | None, out: list[Chunk]) -> None:
        if not text:
            return
        if block.index < 0:
            self._open(block, out)
        text = self._shared.of(text)
        block.pieces.append(text)
        is_text = block.kind == "text"
        out.append(TextDelta(block.index, text) if is_text else ReasoningDelta(block.index, text))

    def _arguments(self, block: _Block, text: str, out: list[Chunk]) -> None:
        block.pieces.append(text)
        out.append(ToolCallDelta(block.index, block.call_id, UNSET, text))

    def _open(self, block: _Block, out: list[Chunk]) -> None:
        held, self._held = self._held, []
        for silent in held:
            self._open(silent, out)
            out.append(BlockEnd(silent.index, silent.block()))
        block.index = len(self._blocks)
        self._blocks.append(block)
        out.append(BlockStart(block.index, block.kind))

    def _close(self, at: int, out: list[Chunk]) -> None:
        block = self._arriving.pop(at)
        if block.index < 0:
            if block.signature:
                self._held.append(block)
            return
        if block.kind == "tool-call" and not block.pieces:
            given = block.given if isinstance(block.given, (dict, str)) and block.given else {}
            text = given if isinstance(given, str) else msgspec.json.encode(given).decode()
            self._arguments(block, text, out)
        out.append(BlockEnd(block.index, block.block()))
