"""The session: an append-only log in memory.

Appending is synchronous and either changes nothing or commits exactly one event (`spec/session-log.md` §6).
What is read of a session, and how one is built from stored entries, is in `folded.py`.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dsh.session.chunk import Chunk, ReasoningDelta, TextDelta, ToolCallDelta, chunk_to_json
from dsh.session.chunk_row import ROW_TYPES
from dsh.session.chunk_run import ChunkRun, Entry, RunKind, check_delta
from dsh.session.error import InvalidEvent, JsonError, ReentrantAppend
from dsh.session.event import SessionEvent
from dsh.session.folded import FoldedLog
from dsh.session.header import SessionHeader
from dsh.session.legacy import check_current
from dsh.session.surface import LOG_ONLY
from dsh.session.value import EMPTY, JsonObject, JsonValue, freeze
from dsh.session.vocabulary import check_payload, check_retired, is_known

END_SEED = "session/end-seed"
Clock = Callable[[], int]
"""Wall clock in epoch milliseconds."""


def now_ms() -> int:
    """The wall clock in epoch milliseconds."""
    return time.time_ns() // 1_000_000


class Session(FoldedLog):
    """One conversation and its log. Build it fresh, from a seed (`seeded`), or with `restore.py`."""

    __slots__ = ("_clock", "_publishing", "on_append")

    def __init__(self, header: SessionHeader, *, clock: Clock = now_ms) -> None:
        super().__init__(header)
        self.on_append: Callable[[int, SessionEvent | None], None] | None = None
        """Set by the store: called after each commit with the seq and the event, or None for a delta."""
        self._clock = clock
        self._publishing = False

    @classmethod
    def seeded(
        cls, header: SessionHeader, seed: Iterable[JsonObject | Entry], *, clock: Clock = now_ms
    ) -> "Session":
        """A session that begins with given events, and marks their end.

        Raises:
            InvalidEvent, JsonError: a seed event breaks a rule; the message holds its index.
        """
        session = cls(header, clock=clock)
        for index, entry in enumerate(seed):
            try:
                session.load(entry)
            except (InvalidEvent, JsonError) as error:
                error.message = f"invalid seed event at index {index}: {error.message}"
                raise
        session.end_seed()
        return session

    def end_seed(self) -> None:
        """Mark the end of what was given, once; the log goes live after it."""
        self.first_live_seq = seq = self._log.length
        if self._log.last_kind != END_SEED:
            self._fold(END_SEED, EMPTY, LOG_ONLY)
            self._log.add(SessionEvent(END_SEED, seq, self._clock(), EMPTY))

    def copy(self, *, clock: Clock = now_ms) -> "Session":
        """An independent session with the same log; what is immutable is shared."""
        made = Session(self.header, clock=clock)
        made._take_over(self)
        return made

    def append(
        self,
        kind: str,
        data: JsonValue,
        *,
        surface: str | JsonObject | None = None,
        sources: Sequence[int] | None = None,
        ignorable: bool = False,
    ) -> SessionEvent:
        """Commit one event and tell the observers.

        Args:
            surface: `"append"` or `{"op": "replace", "start", "end"}`; needed on surface types only.
            sources: `sourceEventSeqs`, the earlier events this one was made from; surface types only.
            ignorable: readers that do not know the type may pass over it; for purely informational records.

        Raises:
            JsonError: `data` is not lossless JSON.
            InvalidEvent: unknown type, wrong payload, or it does not fit the open turn, step or surface.
            ReentrantAppend: called from an observer of another append to this session.
        """
        if type(kind) is not str or kind in ROW_TYPES:
            raise InvalidEvent(f"{kind!r:.60} cannot be the type of an event")
        frozen = freeze(data, f"{kind}: data")
        check_retired(kind, frozen)
        if self._publishing:
            raise self._reentrant(kind)
        if kind == END_SEED:
            raise InvalidEvent(f"{END_SEED} is written by the construction of a session only")
        if not ignorable and not is_known(kind):
            raise InvalidEvent(
                f"{kind!r} is no known event type, and a log that held it could not be read again; "
                "register the type or append it as ignorable"
            )
        check_payload(kind, frozen, ignorable=ignorable)
        check_current(kind, frozen)
        keys: dict[str, Any] = {}
        if surface is not None:
            keys["surfaceOp"] = surface
        if sources is not None:
            keys["sourceEventSeqs"] = tuple(sources)
        seq = self._log.length
        plan = self._surface.plan(kind, seq, frozen, keys, self._log.event)
        event = SessionEvent(kind, seq, self._clock(), frozen, plan.sources, plan.surface, bool(ignorable))
        self._relations.check(kind, frozen, plan.surface)
        self._fold(kind, frozen, plan)
        self._log.add(event)
        if self.on_append is not None:
            self._publish(seq, event)
        return event

    def append_chunk(self, turn: int, step: int, chunk: Chunk) -> int:
        """Commit one piece of a streamed reply and answer its seq; deltas join the open run.

        Raises:
            InvalidEvent: the turn or step is not open, or a field has the wrong type.
            ReentrantAppend: called from an observer of another append to this session.
        """
        name: str | None = None
        call_id: str | None = None
        kind: RunKind
        if isinstance(chunk, TextDelta):
            kind, text = "text", chunk.text
        elif isinstance(chunk, ReasoningDelta):
            kind, text = "reasoning", chunk.text
        elif isinstance(chunk, ToolCallDelta):
            kind, text, call_id = "tool-call", chunk.arguments_delta, chunk.id
            name = chunk.name if type(chunk.name) is str else None
        else:
            data = {"turn": turn, "step": step, "chunk": chunk_to_json(chunk)}
            return self.append("assistant/chunk", data).seq
        if self._publishing:
            raise self._reentrant("assistant/chunk")
        relations = self._relations
        if turn != relations.open_turn or step != relations.open_step or type(text) is not str:
            relations.check_step("assistant/chunk", turn, step)
            raise InvalidEvent(f"assistant/chunk: the text of a delta is a string, found {text!r:.60}")
        at = self._clock()
        log = self._log
        seq = log.length
        run = log.run
        if (
            run is not None
            and run.kind == kind
            and run.index == chunk.index
            and run.step == step
            and run.turn == turn
            and run.call_id == call_id
            and run.name == name
        ):
            run.dt.append(at - run.last_time)
            run.texts.append(text)
            run.last_time = at
            log.length = seq + 1
        else:
            check_delta(kind, turn, step, chunk.index, call_id)
            where = (turn, step, chunk.index)
            log.open(ChunkRun(kind, seq, (at, at), where, [], [text], call_id, name))
        if self.on_append is not None:
            self._publish(seq, None)
        return seq

    def _publish(self, seq: int, event: SessionEvent | None) -> None:
        hook = self.on_append
        if hook is None:
            return
        self._publishing = True
        try:
            hook(seq, event)
        finally:
            self._publishing = False

    def _reentrant(self, kind: str) -> ReentrantAppend:
        return ReentrantAppend(
            f"{kind}: session {self.id} is publishing an event",
            hint="append from a later turn of the event loop (call_soon)",
        )
