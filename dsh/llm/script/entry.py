"""What a scripted model does in one call: a reply, a reply that breaks off, or silence until a cancel."""

from typing import TypeAlias

import msgspec

from dsh.llm.failure import LlmFailure
from dsh.session.chunk import BlockStart, Chunk, TextDelta

PARTIAL: tuple[Chunk, ...] = (BlockStart(0, "text"), TextDelta(0, "partial"))
"""What a hanging call says first, where nothing else is told (`spec/front-ends.md` §10.2)."""


class Chunks(msgspec.Struct, frozen=True):
    """A whole reply. A failed attempt is one as well: its last chunk is a finish of kind `error`."""

    chunks: tuple[Chunk, ...]


class Throw(msgspec.Struct, frozen=True):
    """The beginning of a reply, and then the call raises."""

    chunks: tuple[Chunk, ...]
    failure: LlmFailure


class Hang(msgspec.Struct, frozen=True):
    """The beginning of a reply, and then nothing until the caller cancels."""

    chunks: tuple[Chunk, ...] = PARTIAL
    ready_file: str | None = None
    """A file that is written when the silence begins; its folder exists."""


ScriptEntry: TypeAlias = Chunks | Throw | Hang
