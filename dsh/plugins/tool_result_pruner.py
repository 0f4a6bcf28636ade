"""Row `tool-result-pruner`: cuts long tool results of the past to their beginning and their end.

It does so when somebody asks, as compaction does before it has anything summarised. The whole result stays in
the log (`spec/tools.md` §9). The long prompts of earlier turns are cut as well, when they are asked for.
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

RESULT_MARKER = "\n\n[The middle of this tool result was taken out to save room.]\n\n"
PROMPT_MARKER = "\n\n[The middle of this message was taken out to save room.]\n\n"
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

    def prune(
        self,
        session: Session,
        *,
        spare_from: int | None = None,
        share: float = 1.0,
        prompts_before: int | None = None,
    ) -> int:
        count = 0
        for seq in session.surface_nodes:
            event = session.event(seq)
            if event.type == "tool/result":
                if spare_from is None or seq < spare_from:
                    count += self._cut_result(session, event, share)
            elif prompts_before is not None and seq < prompts_before and _is_prompt(event):
                count += self._cut_prompt(session, event, share)
        return count

    def _cut_result(self, session: Session, event: SessionEvent, share: float) -> bool:
        message: Message = event.data["message"]
        result: Any = message["content"][0]
        content = self._shortened(result["content"], share, RESULT_MARKER)
        if content is None:
            return False
        cut_message = {**message, "content": [{**result, "content": content}]}
        _replace(session, event, message, {**event.data, "message": cut_message})
        return True

    def _cut_prompt(self, session: Session, event: SessionEvent, share: float) -> bool:
        message: Any = event.data
        content = self._shortened(message["content"], share, PROMPT_MARKER)
        if content is None:
            return False
        _replace(session, event, message, {**message, "content": content})
        return True

    def _shortened(self, blocks: Sequence[Block], share: float, marker: str) -> list[Block] | None:
        """The ends of a text over the budget; None for one that is not, or that would not get shorter, so
        that what was cut is not cut again."""
        config = self._config
        head, tail = int(config.head_chars * share), int(config.tail_chars * share)
        length = sum(map(_length, blocks))
        if length <= max(int(config.threshold_chars * share), head + len(marker) + tail):
            return None
        return cut(blocks, head, tail, marker)


def _is_prompt(event: SessionEvent) -> bool:
    return event.type == "user/message" and event.data["source"]["kind"] == "user"


def _replace(session: Session, event: SessionEvent, message: Message, data: Mapping[str, Any]) -> None:
    """The price of what goes, and right after it the shorter message in its place."""
    price = {
        "shadowedRange": {"start": event.seq, "end": event.seq},
        "shadowedSeqs": [event.seq],
        "shadowedTokenCount": log_price(message),
    }
    place = {"op": "replace", "start": event.seq, "end": event.seq}
    session.append("compaction/prune", price)
    session.append(event.type, data, surface=place, sources=[event.seq])


def cut(blocks: Sequence[Block], head: int, tail: int, marker: str = RESULT_MARKER) -> list[Block]:
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
            kept += marker
        kept += text[max(end - at, head - at, 0) :] if at + length > end else ""
        at += length
        if kept:
            out.append(block if kept == text else {**block, "text": kept})
    return out


def _length(block: Block) -> int:
    return len(block["text"]) if block["type"] == "text" else 0


def apply(ctx: Context, config: Config) -> None:
    least = config.head_chars + len(RESULT_MARKER) + config.tail_chars
    if least > config.threshold_chars:
        raise CompositionError(
            f"thresholdChars {config.threshold_chars} is less than what a cut result has: {least}",
            hint="raise thresholdChars, or lower headChars or tailChars",
        )
    ctx.provide(TOOL_RESULT_PRUNER, Pruner(config))
