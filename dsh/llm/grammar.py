"""The grammar of a chunk stream, checked while it passes (`spec/llm.md` §2)."""

from collections.abc import AsyncIterator, Callable

from dsh.errors import DshError
from dsh.llm.request import LlmRequest
from dsh.llm.stream import close_stream
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

_DELTAS: dict[type, str] = {TextDelta: "text", ReasoningDelta: "reasoning", ToolCallDelta: "tool-call"}


class StreamGrammar:
    """What a stream has opened so far. `check` raises at the first chunk that does not fit."""

    def __init__(self) -> None:
        self._open: dict[int, str] = {}
        self._usage_seen = False
        self._finished = False

    def check(self, chunk: Chunk) -> None:
        """Judge the next chunk.

        Raises:
            DshError: `INVARIANT`, the chunk may not stand here.
        """
        if self._finished:
            raise _broken(chunk, "nothing may follow finish")
        if isinstance(chunk, TextDelta | ReasoningDelta | ToolCallDelta):
            kind = _DELTAS[type(chunk)]
            if self._open.get(chunk.index) != kind:
                raise _broken(chunk, f"no {kind} block is open at its index")
        elif isinstance(chunk, BlockStart):
            if chunk.index < 0 or chunk.index in self._open:
                raise _broken(chunk, "its index is negative or open already")
            self._open[chunk.index] = chunk.block_type
        elif isinstance(chunk, BlockEnd):
            if self._open.pop(chunk.index, None) != chunk.block.get("type"):
                raise _broken(chunk, "no block of its type is open at its index")
        elif isinstance(chunk, UsageChunk):
            if self._usage_seen:
                raise _broken(chunk, "usage was reported before")
            self._usage_seen = True
        elif isinstance(chunk, Finish):
            failed = chunk.reason.get("kind") in ("error", "aborted")
            if self._open and not failed:
                raise _broken(chunk, f"blocks {sorted(self._open)} are still open")
            if failed and chunk.replay_state:
                raise _broken(chunk, "a failed reply has no replay state")
            self._finished = True

    def end(self) -> None:
        """Judge the end of the stream.

        Raises:
            DshError: `INVARIANT`, there was no finish.
        """
        if not self._finished:
            raise DshError("the model stream ended without a finish chunk", code="INVARIANT")


async def check_stream(
    request: LlmRequest, following: Callable[[], AsyncIterator[Chunk]]
) -> AsyncIterator[Chunk]:
    """A listener of `llm/stream` that lets a well-formed stream pass and raises on any other."""
    grammar = StreamGrammar()
    check = grammar.check
    source = following()
    try:
        async for chunk in source:
            check(chunk)
            yield chunk
        grammar.end()
    finally:
        await close_stream(source)


def _broken(chunk: Chunk, why: str) -> DshError:
    return DshError(f"the model stream breaks its grammar at {chunk!r:.200}: {why}", code="INVARIANT")
