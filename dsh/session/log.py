"""The session: an append-only log in memory, and what is folded from it as it grows.

State: the entries, the surface, the open turn and step, where the last event of each type stands, and the
derived messages. Appending is synchronous and either changes nothing or commits exactly
one event (`spec/session-log.md` §6).
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, ParamSpec

from dsh.session.chunk import Chunk, ReasoningDelta, TextDelta, ToolCallDelta, chunk_to_json
from dsh.session.chunk_run import ChunkRun, Entry, RunKind, check_delta
from dsh.session.derive import Derivation
from dsh.session.entry_list import LINE_LIMIT, EntryList
from dsh.session.envelope import check_envelope
from dsh.session.error import InvalidEvent, JsonError, ReentrantAppend
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.message import Message
from dsh.session.relations import Relations
from dsh.session.request_header import canonical_header
from dsh.session.surface import LOG_ONLY, Plan, SurfaceState
from dsh.session.value import EMPTY, FrozenDict, JsonObject, JsonValue, freeze, is_shallow, safe_int
from dsh.session.vocabulary import check_payload, check_retired, check_stored, is_known, payload_fault

P = ParamSpec("P")

END_SEED = "session/end-seed"
MAX_IRREGULARITIES = 100
Clock = Callable[[], int]
"""Wall clock in epoch milliseconds."""


def now_ms() -> int:
    """The wall clock in epoch milliseconds."""
    return time.time_ns() // 1_000_000


class Session:
    """One conversation and its log. Build it fresh, from a seed (`seeded`), or with `restore.py`."""

    __slots__ = (
        "__weakref__",
        "_clock",
        "_derived",
        "_folded_header",
        "_inspected",
        "_last",
        "_loaded",
        "_log",
        "_misshapen",
        "_out_of_place",
        "_publishing",
        "_relations",
        "_surface",
        "first_live_seq",
        "header",
        "id",
        "on_append",
    )

    def __init__(self, header: SessionHeader, *, clock: Clock = now_ms) -> None:
        self.id = header.id
        self.header = header
        self.first_live_seq = 0
        """How many events were there when this process built the object."""
        self.on_append: Callable[[int, SessionEvent | None], None] | None = None
        """Set by the store: called after each commit with the seq and the event, or None for a delta."""
        self._clock = clock
        self._log = EntryList()
        self._publishing = False
        self._surface = SurfaceState()
        self._relations = Relations()
        self._last: dict[str, int] = {}
        self._folded_header: tuple[int, FrozenDict] | None = None
        self._derived = Derivation()
        self._out_of_place: list[tuple[int, str]] = []
        """Loaded events that do not fit the turn and step they stand in, and why."""
        self._misshapen: list[tuple[int, str]] = []
        """Loaded events whose payloads have a defect, as far as they have been looked at."""
        self._loaded = self._inspected = 0
        """The seqs after the last loaded event, and after the last one whose payload was looked at."""

    def __repr__(self) -> str:
        return f"<Session {self.id} length {self._log.length}>"

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

    # -- reading ---------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """The number of events, which is the seq of the next one."""
        return self._log.length

    def event(self, seq: int) -> SessionEvent:
        """The event with this seq.

        Raises:
            IndexError: there is none.
        """
        return self._log.event(seq)

    def entries(self, start: int = 0, stop: int | None = None) -> list[Entry]:
        """Everything from seq `start` up to `stop`, packed as it is held; what is handed out never grows."""
        return self._log.between(start, self._log.length if stop is None else min(stop, self._log.length))

    def walk(self) -> Iterator[Entry]:
        """The whole log one entry at a time, packed as it is held; nothing may be appended meanwhile."""
        return self._log.walk()

    def events(self, start: int = 0, stop: int | None = None) -> Iterator[SessionEvent]:
        """The events from seq `start` up to `stop` as they are now, packed runs expanded one by one."""
        return self._log.events(start, self._log.length if stop is None else min(stop, self._log.length))

    def select(self, *types: str, start: int = 0) -> Iterator[SessionEvent]:
        """The events of some types from seq `start` on; packed deltas are passed over unseen."""
        return self._log.select(frozenset(types), start)

    def last(self, kind: str) -> SessionEvent | None:
        """The last event of a type, packed deltas not counted; how whole-value events are read."""
        seq = self._last.get(kind)
        return None if seq is None else self._log.event(seq)

    def last_before(self, stop: int, *types: str) -> SessionEvent | None:
        """The last event of some types below seq `stop`, looked for backwards from there; None if none is."""
        return self._log.last_before(frozenset(types), stop)

    # -- folds -----------------------------------------------------------------------------------

    @property
    def last_turn(self) -> int:
        """Number of the last turn started, 0 before the first."""
        return self._relations.last_turn

    @property
    def open_turn(self) -> int | None:
        """Number of the turn that has no end yet."""
        return self._relations.open_turn

    @property
    def open_step(self) -> int | None:
        """Number of the step that has no end yet."""
        return self._relations.open_step

    @property
    def surface_nodes(self) -> tuple[int, ...]:
        """The seqs that the model sees, in model order."""
        return tuple(self._surface.nodes)

    @property
    def replace_generation(self) -> int:
        """How many replacements have been committed."""
        return self._surface.generation

    @property
    def request_header(self) -> FrozenDict | None:
        """The canonical form of the last `request/header`, None before the first."""
        seq = self._last.get("request/header")
        if seq is None:
            return None
        if self._folded_header is None or self._folded_header[0] != seq:
            self._folded_header = seq, canonical_header(self._log.event(seq).data["header"])
        return self._folded_header[1]

    @property
    def request_context(self) -> FrozenDict | None:
        """The payload of the last `request/context`, None before the first."""
        event = self.last("request/context")
        return event.data if event is not None and isinstance(event.data, FrozenDict) else None

    @property
    def irregularities(self) -> list[tuple[int, str]]:
        """Loaded events that break a rule which the log can be continued without: the first 100, by seq.

        They do not fit their payload, or the turn and step they stand in. Payloads are looked at when
        somebody asks: who opens a log to continue it does not pay for that.
        """
        for entry in self.entries(self._inspected, self._loaded):
            if isinstance(entry, SessionEvent) and len(self._misshapen) < MAX_IRREGULARITIES:
                fault = payload_fault(entry.type, entry.data)
                if fault is not None:
                    self._misshapen.append((entry.seq, fault))
        self._inspected = self._loaded
        found = sorted(self._misshapen + self._out_of_place, key=itemgetter(0))
        return found[:MAX_IRREGULARITIES]

    def derive_messages(self) -> tuple[Message, ...]:
        """The messages the model sees, verbatim. Costs as much as there are new ones."""
        return self._derived.messages(self._surface, self._log.event)

    # -- writing ---------------------------------------------------------------------------------

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

    def _fold(self, kind: str, data: Any, plan: Plan) -> None:
        """Take the next event into account, which is about to enter the list."""
        seq = self._log.length
        self._surface.commit(seq, plan)
        self._relations.advance(kind, data)
        self._last[kind] = seq

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

    # -- building --------------------------------------------------------------------------------

    def load(self, entry: JsonObject | Entry, *, line: bytes | None = None) -> None:
        """Add one event of a seed or a stored log: envelope, payload, seq and surface are checked.

        An event that does not fit the open turn and step goes to `irregularities`, as do payloads with a
        defect that the log can be continued without. Nobody is told.

        Args:
            line: the JSON text that `entry` was decoded from; the log holds a short one in its place.

        Raises:
            InvalidEvent, JsonError: the event breaks a rule.
        """
        if isinstance(entry, ChunkRun):
            self._check_seq("assistant/chunk", entry.seq0)
            self._note(entry.seq0, self._relations.check_step, "assistant/chunk", entry.turn, entry.step)
            self._log.add(entry)
            self._loaded = entry.stop
            return
        stored = check_envelope(entry.to_json() if isinstance(entry, SessionEvent) else entry)
        kind: str = stored["type"]
        keeps_line = line is not None and len(line) <= LINE_LIMIT and is_shallow(line)
        data = stored["data"] if keeps_line else freeze(stored["data"], f"{kind}: data", stored=True)
        check_stored(kind, data)
        check_retired(kind, data)
        seq: Any = safe_int(stored["seq"])
        self._check_seq(kind, seq)
        plan = self._surface.plan(kind, seq, data, stored, self._log.event)
        self._note(seq, self._relations.check, kind, data, plan.surface)
        self._fold(kind, data, plan)
        self._loaded = seq + 1
        if keeps_line and line is not None:
            self._log.add_line(kind, line)
        elif isinstance(entry, SessionEvent):
            self._log.add(entry)
        else:
            at: Any = safe_int(stored["time"])
            made = SessionEvent(kind, seq, at, data, plan.sources, plan.surface, "ignorable" in stored)
            self._log.add(made)

    def _note(self, seq: int, check: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            check(*args, **kwargs)
        except InvalidEvent as error:
            if len(self._out_of_place) < MAX_IRREGULARITIES:
                self._out_of_place.append((seq, error.message))

    def _check_seq(self, kind: str, seq: int) -> None:
        if seq != self._log.length:
            raise InvalidEvent(f"{kind}: seq {seq} is not contiguous, {self._log.length} comes next")

    def end_seed(self) -> None:
        """Mark the end of what was given, once; the log goes live after it."""
        self.first_live_seq = seq = self._log.length
        if self._log.last_kind != END_SEED:
            self._fold(END_SEED, EMPTY, LOG_ONLY)
            self._log.add(SessionEvent(END_SEED, seq, self._clock(), EMPTY))

    def copy(self, *, clock: Clock = now_ms) -> "Session":
        """An independent session with the same log; what is immutable is shared."""
        made = Session(self.header, clock=clock)
        made.first_live_seq = self.first_live_seq
        made._log = self._log.copy()
        made._surface = self._surface.copy()
        made._relations = self._relations.copy()
        made._last = dict(self._last)
        made._loaded, made._inspected = self._loaded, self._inspected
        made._misshapen, made._out_of_place = list(self._misshapen), list(self._out_of_place)
        return made
