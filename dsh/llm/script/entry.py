"""What a scripted model does in one call: a reply, a reply that breaks off, or silence until a cancel."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TypeAlias

import msgspec

from dsh.kernel import Cancelled, CancelToken
from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.script.error import INVALID, ScriptError
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


async def play(entry: ScriptEntry, signal: CancelToken | None, *, pace_ms: float = 0) -> AsyncIterator[Chunk]:
    """The chunks of an entry.

    Args:
        pace_ms: how long to wait before each chunk.

    Raises:
        LlmError: `ABORTED`, the caller cancelled; or what the entry throws.
        ScriptError: `SCRIPT_INVALID`, the file that tells of a hang cannot be written.
    """
    signal = signal or CancelToken()
    try:
        for chunk in entry.chunks:
            signal.raise_if_cancelled()
            if pace_ms > 0:
                await signal.sleep(pace_ms / 1000)
            yield chunk
        signal.raise_if_cancelled()
        if isinstance(entry, Hang):
            _tell(entry.ready_file)
            await signal.wait()
            signal.raise_if_cancelled()
    except Cancelled:
        raise LlmError.of("ABORTED", "the request was cancelled") from None
    if isinstance(entry, Throw):
        raise LlmError(entry.failure)


def _tell(ready_file: str | None) -> None:
    if ready_file is not None:
        try:
            Path(ready_file).write_text("ready\n", encoding="utf-8")
        except (OSError, ValueError) as error:
            told = error.strerror if isinstance(error, OSError) else str(error)
            raise ScriptError(INVALID, f"readyFile {ready_file!r} cannot be written: {told}") from None
