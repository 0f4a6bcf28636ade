"""Puts the chunks of one reply together again (`spec/llm.md` §2.1)."""

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from dsh.errors import DshError
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

STOP: Mapping[str, Any] = {"kind": "stop"}


class _Part:
    """One block while it arrives."""

    __slots__ = ("call_id", "closed", "index", "kind", "name", "pieces")

    def __init__(self, index: int, kind: str) -> None:
        self.index = index
        self.kind = kind
        self.pieces: list[str] = []
        self.call_id = ""
        self.name = ""
        self.closed: Mapping[str, Any] | None = None

    def block(self) -> Mapping[str, Any]:
        """The block as it stands.

        Raises:
            DshError: it is still open and of a kind that deltas cannot describe.
        """
        call_id = self.call_id or f"call-{self.index}"
        if self.closed is not None:
            is_unnamed = self.closed.get("type") == "tool-call" and not self.closed.get("id")
            return {**self.closed, "id": call_id} if is_unnamed else self.closed
        text = "".join(self.pieces)
        if self.kind in ("text", "reasoning"):
            return {"type": self.kind, "text": text}
        if self.kind == "tool-call":
            return {"type": "tool-call", "id": call_id, "name": self.name, "arguments": text}
        raise DshError(f"block {self.index} of type {self.kind!r} was never closed", code="INVALID_STREAM")


class BlockAssembler:
    """Collects the chunks of one reply: blocks in order of first appearance, usage, finish, replay state.

    It takes any order of chunks. A delta opens a block that nothing opened before, a closed block takes
    nothing any more, and what a `BlockEnd` says counts more than the deltas.
    """

    def __init__(self) -> None:
        self._parts: dict[int, _Part] = {}
        self._finish: Finish | None = None
        self._usage: Mapping[str, Any] | None = None
        self._last: _Part | None = None

    def push(self, chunk: Chunk) -> None:
        """Take one chunk."""
        if isinstance(chunk, (TextDelta, ReasoningDelta)):
            part = self._last
            if part is None or part.index != chunk.index:
                part = self._part(chunk.index, "text" if isinstance(chunk, TextDelta) else "reasoning")
            if part.closed is None:
                part.pieces.append(chunk.text)
        elif isinstance(chunk, ToolCallDelta):
            part = self._part(chunk.index, "tool-call")
            if part.closed is None:
                part.call_id = chunk.id or part.call_id
                if chunk.name is not UNSET and chunk.name:
                    part.name = chunk.name
                part.pieces.append(chunk.arguments_delta)
        elif isinstance(chunk, BlockStart):
            self._part(chunk.index, chunk.block_type)
        elif isinstance(chunk, BlockEnd):
            part = self._part(chunk.index, str(chunk.block.get("type", "")))
            if part.closed is None:
                part.closed = chunk.block
        elif isinstance(chunk, UsageChunk):
            self._usage = chunk.usage
        elif isinstance(chunk, Finish):
            self._finish = chunk

    def _part(self, index: int, kind: str) -> _Part:
        part = self._parts.get(index)
        if part is None:
            part = self._parts[index] = _Part(index, kind)
        self._last = part
        return part

    def blocks(self) -> tuple[Mapping[str, Any], ...]:
        """The content blocks. After a `max-tokens` finish without its tool calls, which are cut off.

        Raises:
            DshError: an open block is of a kind that deltas cannot describe.
        """
        return tuple(block for block, kept in self._blocks() if kept)

    def _blocks(self) -> list[tuple[Mapping[str, Any], bool]]:
        cut = self.finish.get("kind") == "max-tokens"
        blocks = [part.block() for part in self._parts.values()]
        return [(block, not (cut and block.get("type") == "tool-call")) for block in blocks]

    def interrupted_blocks(self) -> tuple[Mapping[str, Any], ...]:
        """Text and reasoning that are not blank, for a message that was interrupted."""
        parts = [part for part in self._parts.values() if part.kind in ("text", "reasoning")]
        return tuple(
            block for block in (part.block() for part in parts) if str(block.get("text", "")).strip()
        )

    @property
    def is_closed(self) -> bool:
        """Whether every block that was begun has been ended."""
        return all(part.closed is not None for part in self._parts.values())

    @property
    def finish(self) -> Mapping[str, Any]:
        """The finish reason; `{"kind": "stop"}` where the stream ended without one."""
        return STOP if self._finish is None else self._finish.reason

    @property
    def usage(self) -> Mapping[str, Any] | None:
        """The token usage, where the stream reported one; the last report counts."""
        return self._usage

    @property
    def replay_state(self) -> Mapping[str, Any] | None:
        """The provider's own state, pruned with dropped blocks; None where it does not fit the blocks."""
        if self._finish is None or self._finish.replay_state is UNSET:
            return None
        state = self._finish.replay_state
        entries = state.get("blocks")
        if entries is None:
            return state
        blocks = self._blocks()
        if len(entries) != len(blocks):
            return None
        kept = [entry for entry, (_, keep) in zip(entries, blocks, strict=True) if keep]
        return {**state, "blocks": kept}
