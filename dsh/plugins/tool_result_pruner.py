"""Row `tool-result-pruner`: cuts long tool results of the past to their beginning and their end.

It does so when somebody asks, as compaction does before it has anything summarised. The whole result stays in
the log (`spec/tools.md` §9).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from dsh.capabilities.bounds import Amount
from dsh.capabilities.compaction import TOOL_RESULT_PRUNER
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.session.estimate import log_price
from dsh.session.event import SessionEvent
from dsh.session.log import Session
from dsh.session.message import Message

inject = ()
provide = [TOOL_RESULT_PRUNER]

MARKER = "\n\n[The middle of this tool result was taken out to save room.]\n\n"
Block = Mapping[str, Any]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row; texts are counted in code points."""

    threshold_chars: Amount = 8192
    """Results with more text than this are cut."""
    head_chars: Amount = 4096
    """How much of a cut result's beginning stays."""
    tail_chars: Amount = 1024
    """How much of its end stays."""


class Pruner:
    """Implements `dsh.capabilities.compaction.ToolResultPruner`."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def prune(self, session: Session, *, spare_from: int | None = None) -> int:
        """Cut the results over the budget; a result that was cut is below it and is not cut again."""
        count = 0
        for seq in session.surface_nodes:
            if spare_from is not None and seq >= spare_from:
                continue
            event = session.event(seq)
            if event.type == "tool/result" and self._is_long(event):
                self._cut(session, event)
                count += 1
        return count

    def _is_long(self, event: SessionEvent) -> bool:
        content = event.data["message"]["content"][0]["content"]
        return sum(map(_length, content)) > self._config.threshold_chars

    def _cut(self, session: Session, event: SessionEvent) -> None:
        """The price of what goes, and right after it the shorter result in its place."""
        message: Message = event.data["message"]
        result: Any = message["content"][0]
        content = cut(result["content"], self._config.head_chars, self._config.tail_chars)
        price = {
            "shadowedRange": {"start": event.seq, "end": event.seq},
            "shadowedSeqs": [event.seq],
            "shadowedTokenCount": log_price(message),
        }
        session.append("compaction/prune", price)
        session.append(
            "tool/result",
            {**event.data, "message": {**message, "content": [{**result, "content": content}]}},
            surface={"op": "replace", "start": event.seq, "end": event.seq},
            sources=[event.seq],
        )


def cut(blocks: Sequence[Block], head: int, tail: int) -> list[Block]:
    """The blocks with the first `head` and the last `tail` code points of their text, and one marker between.

    What is no text stays where it is. The text must be longer than both together.
    """
    end = sum(map(_length, blocks)) - tail
    at, is_marked = 0, False
    out: list[Block] = []
    for block in blocks:
        length = _length(block)
        if not length:
            if block["type"] != "text":
                out.append(block)
            continue
        text: str = block["text"]
        kept = text[: max(head - at, 0)]
        if at + length > head and not is_marked:
            is_marked = True
            kept += MARKER
        kept += text[max(end - at, head - at, 0) :] if at + length > end else ""
        at += length
        if kept:
            out.append(block if kept == text else {**block, "text": kept})
    return out


def _length(block: Block) -> int:
    return len(block["text"]) if block["type"] == "text" else 0


def apply(ctx: Context, config: Config) -> None:
    least = config.head_chars + len(MARKER) + config.tail_chars
    if least > config.threshold_chars:
        raise CompositionError(
            f"thresholdChars {config.threshold_chars} is less than what a cut result has: {least}",
            hint="raise thresholdChars, or lower headChars or tailChars",
        )
    ctx.provide(TOOL_RESULT_PRUNER, Pruner(config))
