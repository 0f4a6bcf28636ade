"""The grammar of a chunk stream: legal ones pass untouched, each illegal one is named."""

from collections.abc import AsyncIterator

import pytest

from dsh.errors import DshError
from dsh.llm.grammar import StreamGrammar, check_stream
from dsh.llm.request import LlmCallConfig, LlmRequest
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
from tests.aio import aio

TEXT = {"type": "text", "text": "a"}
USAGE = UsageChunk({"inputTokens": 1, "outputTokens": 1})
STOP = Finish({"kind": "stop"})
FAILED = Finish({"kind": "error", "failure": {"message": "m", "code": "C"}})


def judged(*chunks: Chunk) -> None:
    grammar = StreamGrammar()
    for chunk in chunks:
        grammar.check(chunk)
    grammar.end()


def test_legal_streams_pass() -> None:
    judged(BlockStart(0, "text"), TextDelta(0, "a"), BlockEnd(0, TEXT), USAGE, STOP)
    judged(
        BlockStart(1, "text"), BlockStart(0, "reasoning"), ReasoningDelta(0, "b"), TextDelta(1, "a"), FAILED
    )
    judged(BlockStart(0, "text"), BlockEnd(0, TEXT), BlockStart(0, "text"), BlockEnd(0, TEXT), STOP)
    judged(BlockStart(0, "audio"), BlockEnd(0, {"type": "audio"}), STOP)


@pytest.mark.parametrize(
    "chunks",
    [
        (BlockStart(-1, "text"),),
        (BlockStart(0, "text"), BlockStart(0, "text")),
        (TextDelta(0, "a"),),
        (BlockStart(0, "text"), ReasoningDelta(0, "a")),
        (BlockStart(0, "text"), ToolCallDelta(0, "c")),
        (BlockEnd(0, TEXT),),
        (BlockStart(0, "reasoning"), BlockEnd(0, TEXT)),
        (BlockStart(0, "text"), BlockEnd(0, TEXT), TextDelta(0, "late")),
        (USAGE, USAGE),
        (BlockStart(0, "text"), STOP),
        (STOP, STOP),
        (STOP, USAGE),
        (Finish({"kind": "error", "failure": {"message": "m", "code": "C"}}, {"response": 1}),),
    ],
)
def test_each_malformed_stream_trips_the_grammar_at_its_last_chunk(chunks: tuple[Chunk, ...]) -> None:
    grammar = StreamGrammar()
    for chunk in chunks[:-1]:
        grammar.check(chunk)
    with pytest.raises(DshError) as caught:
        grammar.check(chunks[-1])
    assert caught.value.code == "INVARIANT"


def test_a_stream_without_a_finish_trips_it_at_its_end() -> None:
    with pytest.raises(DshError) as caught:
        judged(BlockStart(0, "text"), BlockEnd(0, TEXT))
    assert caught.value.code == "INVARIANT"


@aio
async def test_the_listener_passes_chunks_on_and_closes_what_it_wraps() -> None:
    closed = False

    async def source() -> AsyncIterator[Chunk]:
        nonlocal closed
        try:
            for chunk in (BlockStart(0, "text"), TextDelta(0, "a"), BlockEnd(0, TEXT), STOP):
                yield chunk
        finally:
            closed = True

    request = LlmRequest(config=LlmCallConfig("p", "m"), messages=())
    checked = check_stream(request, source)
    assert await anext(checked) == BlockStart(0, "text")
    await checked.aclose()  # type: ignore[attr-defined]

    assert closed
    assert len([chunk async for chunk in check_stream(request, source)]) == 4
