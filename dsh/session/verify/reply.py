"""Streamed pieces against the message that was made of them: the same blocks, the same usage, all cited.

A step may take several attempts; the pieces of those that failed stay in the log, and are cited by nobody.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

from msgspec import UNSET

from dsh.errors import DshError
from dsh.session.assembler import BlockAssembler
from dsh.session.chunk import (
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    chunk_from_json,
)
from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.error import InvalidEvent
from dsh.session.event import SessionEvent
from dsh.session.value import json_equal
from dsh.session.verify.finding import Findings, quoted


class Replies:
    """Follows the attempt that is being streamed."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self.checked = 0
        """Messages that were compared with their pieces."""
        self._has_message = False
        self._missing: list[int] = []
        """Where steps of the open turn ended whose reply came to a good end and became no message."""
        self._reported: list[int] = []
        """Those of turns that were completed."""
        self._begin()

    def _begin(self) -> None:
        self._reply = BlockAssembler()
        self._spans: list[range] = []
        """The seqs of the attempt's pieces."""
        self._is_readable = True
        self._is_over = False
        """Its finish has come: the next piece belongs to another attempt."""

    def see(self, entry: Entry) -> None:
        """Take the next entry."""
        if isinstance(entry, ChunkRun):
            self._add(range(entry.seq0, entry.stop))
            self._reply.push(_joined(entry))
            return
        match entry.type:
            case "assistant/chunk":
                self._add(range(entry.seq, entry.seq + 1))
                self._push(entry)
            case "assistant/message" if entry.surface == "append":
                self._has_message = True
                self._check(entry)
                self._begin()
            case "step/end":
                if self._is_over and self._reply.finish.get("kind") in ("stop", "tool-calls"):
                    self._missing.append(entry.seq)
                self._begin()
            case "turn/end":
                if entry.data["reason"]["kind"] == "completed":
                    self._reported += self._missing
                self._missing.clear()
                self._begin()
            case "step/start" | "llm/retry" | "turn/start":
                self._begin()

    def finish(self) -> None:
        """The log ends. One without any message is a recording of what was streamed, and lacks none."""
        for seq in self._reported if self._has_message else ():
            said = "step/end: the reply of this step was streamed whole, and no assistant/message holds it"
            self._findings.error("REPLY_MISSING", seq, said)

    def _add(self, span: range) -> None:
        if self._is_over:
            self._begin()
        if self._spans and self._spans[-1].stop == span.start:
            self._spans[-1] = range(self._spans[-1].start, span.stop)
        else:
            self._spans.append(span)

    def _push(self, event: SessionEvent) -> None:
        try:
            chunk = chunk_from_json(event.data["chunk"])
            self._reply.push(chunk)
            self._is_over = isinstance(chunk, Finish)
        except (InvalidEvent, LookupError, TypeError):
            self._is_readable = False
            said = "assistant/chunk: it is no piece of a reply that is known here"
            self._findings.warning("CHUNK_UNKNOWN", event.seq, said)

    def _check(self, event: SessionEvent) -> None:
        if event.sources is None:
            if self._spans:
                said = "assistant/message does not cite the pieces it was made of"
                self._findings.warning("REPLY_UNCITED", event.seq, said)
            return
        if not self._are_cited(event):
            return
        if event.sources and self._is_readable:
            self.checked += 1
            self._check_content(event)

    def _are_cited(self, event: SessionEvent) -> bool:
        expected = chain.from_iterable(self._spans)
        if _same(iter(event.sources or ()), expected):
            return True
        pieces = set(chain.from_iterable(self._spans))
        cited = set(event.sources or ())
        if strange := cited - pieces:
            said = f"assistant/message cites event {min(strange)}, which is no piece of its attempt"
        elif missing := pieces - cited:
            said = f"assistant/message does not cite event {min(missing)}, which is a piece of its attempt"
        else:
            said = "assistant/message cites the pieces of its attempt in another order"
        self._findings.error("REPLY_CITES_OTHER", event.seq, said)
        return False

    def _check_content(self, event: SessionEvent) -> None:
        data, reply = event.data, self._reply
        was_cut = data.get("interrupted") is True
        try:
            blocks = reply.interrupted_blocks() if was_cut else reply.blocks()
            state = None if was_cut else reply.replay_state
        except (DshError, TypeError) as error:  # what a stranger's stream holds may have any shape
            said = f"assistant/message: its pieces make no reply ({quoted(str(error))})"
            self._findings.warning("CHUNK_UNKNOWN", event.seq, said)
            return
        content = data["message"]["content"]
        if not json_equal(content, blocks):
            said = f"assistant/message: {_difference(content, blocks)}"
            self._findings.error("REPLY_DIFFERS", event.seq, said)
        if not json_equal(data.get("usage"), reply.usage):
            said = (
                f"assistant/message: the usage is {quoted(data.get('usage'))}, "
                f"the stream told {quoted(reply.usage)}"
            )
            self._findings.error("USAGE_DIFFERS", event.seq, said)
        if not json_equal(data["message"]["source"].get("replayState"), state):
            said = "assistant/message: its replayState is not the one that the stream ended with"
            self._findings.error("REPLAY_STATE_DIFFERS", event.seq, said)


def _joined(run: ChunkRun) -> Chunk:
    """The deltas of a run as one, which assembles to the same."""
    text = "".join(run.texts)
    if run.kind == "text":
        return TextDelta(run.index, text)
    if run.kind == "reasoning":
        return ReasoningDelta(run.index, text)
    return ToolCallDelta(run.index, run.call_id or "", UNSET if run.name is None else run.name, text)


def _same(left: Iterator[int], right: Iterator[int]) -> bool:
    nothing = object()
    while True:
        a, b = next(left, nothing), next(right, nothing)
        if a != b:
            return False
        if a is nothing:
            return True


def _difference(content: Any, blocks: tuple[Mapping[str, Any], ...]) -> str:
    if len(content) != len(blocks):
        return f"it has {len(content)} blocks, its pieces make {len(blocks)}"
    for position, (held, made) in enumerate(zip(content, blocks, strict=True)):
        if isinstance(held, Mapping) and not json_equal(held, made):
            for key in ("type", "id", "name", "text", "arguments"):
                if held.get(key) != made.get(key):
                    return (
                        f"{key} of block {position} is {quoted(held.get(key))}, "
                        f"its pieces make {quoted(made.get(key))}"
                    )
            return f"block {position} is not what its pieces make"
    return "a block is not what its pieces make"
