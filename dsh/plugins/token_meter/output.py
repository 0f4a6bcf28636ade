"""What a reply weighs as it was streamed: its message may hold less, when it was cut off."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.estimate import (
    FRAME_BYTES,
    utf8_length,
    weight_of_blocks,
    weight_of_call,
)


class Piece(NamedTuple):
    """A part of the stream of a step: an entry of the log, from one seq up to another."""

    entry: Entry
    start: int
    stop: int


class _Part:
    """One block while it arrives."""

    __slots__ = ("closed", "kind", "name", "size")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.name = ""
        self.size = 0
        self.closed: int | None = None

    def weight(self) -> int:
        if self.closed is not None:
            return self.closed
        return weight_of_call(self.name, self.size) if self.kind == "tool-call" else self.size


class OutputWeight:
    """Adds up the chunks of one reply, as the assembler puts them together."""

    def __init__(self) -> None:
        self._parts: dict[Any, _Part] = {}

    def add_run(self, run: ChunkRun, texts: Sequence[str]) -> None:
        """Some members of a packed run."""
        self._add(run.index, run.kind, utf8_length("".join(texts)), run.name)

    def add_chunk(self, chunk: Any) -> None:
        """A chunk of any shape; what is no part of a block weighs nothing."""
        if not isinstance(chunk, dict) or type(index := chunk.get("index")) is not int:
            return
        match chunk.get("type"):
            case "block-start":
                self._add(index, str(chunk.get("blockType")), 0, None)
            case "text-delta" | "reasoning-delta":
                self._add(index, "text", _size(chunk.get("text")), None)
            case "tool-call-delta":
                self._add(index, "tool-call", _size(chunk.get("argumentsDelta")), chunk.get("name"))
            case "block-end":
                part = self._parts.setdefault(index, _Part(""))
                if part.closed is None:
                    part.closed = _closed(chunk.get("block"))

    def _add(self, index: int, kind: str, size: int, name: Any) -> None:
        part = self._parts.get(index)
        if part is None:
            part = self._parts[index] = _Part(kind)
        if isinstance(name, str) and name:
            part.name = name
        part.size += size

    def total(self) -> int:
        """Of the message that the chunks make, in bytes; 0 where they make none."""
        return sum(part.weight() for part in self._parts.values()) + FRAME_BYTES if self._parts else 0


def _size(text: Any) -> int:
    return utf8_length(text) if isinstance(text, str) else 0


def _closed(block: Any) -> int | None:
    """What a finished block weighs; None for one that is none."""
    try:
        return weight_of_blocks([block])
    except (AttributeError, KeyError, TypeError):
        return None
