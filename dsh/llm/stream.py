"""Closing the stream of a reply: whoever opens one, or passes one on, ends it on every path."""

from collections.abc import AsyncIterator

from dsh.session.chunk import Chunk


async def close_stream(chunks: AsyncIterator[Chunk]) -> None:
    """End a stream, wherever it has got to; an iterator that cannot be closed has nothing to end."""
    close = getattr(chunks, "aclose", None)
    if close is not None:
        await close()
