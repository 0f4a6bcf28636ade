"""Payloads of compaction: its bracket, and the records that price what a replacement shadows."""

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from dsh.session.payload.block import blocks
from dsh.session.payload.request import TokenUsage
from dsh.session.payload.shape import Count, Misfit, Ordinal, Payload, at, payload


class ShadowedRange(TypedDict):
    """First and last replaced node of the surface, by position; the first seq may be the greater one."""

    start: Count
    end: Count


class CompactionStart(TypedDict):
    """Compaction begins."""

    compactionId: str
    sourceCommandId: NotRequired[str]
    turn: Ordinal | None
    """The open turn, null between turns."""


class CompactionSummary(TypedDict):
    """The summary and what it stands for; the checkpoint message follows at once."""

    compactionId: str
    sourceCommandId: NotRequired[str]
    summary: Sequence[Any]
    """Content blocks."""
    rawOutput: NotRequired[Sequence[Any]]
    """Content blocks as the model gave them."""
    llmStreamCall: NotRequired[Literal[True]]
    """A model wrote it; `rawOutput` is there."""
    shadowedRange: ShadowedRange
    shadowedSeqs: Sequence[Count]
    shadowedTokenCount: Count
    provider: str
    model: str
    maxTokens: NotRequired[Count]
    usage: NotRequired[TokenUsage]


class CompactionEnd(TypedDict):
    """Compaction is over."""

    compactionId: str
    sourceCommandId: NotRequired[str]
    turn: Ordinal | None
    error: NotRequired[str]


class CompactionPrune(TypedDict):
    """A long tool result is about to be cut; the rewritten result follows at once."""

    shadowedRange: ShadowedRange
    shadowedSeqs: Sequence[Count]
    shadowedTokenCount: Count


def _has_raw_output(data: Any) -> None:
    if "llmStreamCall" in data and "rawOutput" not in data:
        raise Misfit("object missing field `rawOutput`, which `llmStreamCall` needs")


PAYLOADS: dict[str, Payload] = {
    "compaction/start": payload(CompactionStart),
    "compaction/summary": payload(
        CompactionSummary, _has_raw_output, at("summary", blocks), at("rawOutput", blocks)
    ),
    "compaction/end": payload(CompactionEnd),
    "compaction/prune": payload(CompactionPrune),
}
"""By event type."""
