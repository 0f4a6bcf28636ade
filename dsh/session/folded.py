"""A log in memory and what is folded from it as it grows: the part of a session that is read and built.

State: the entries, the surface, the open turn and step, where the last event of each type stands, and the
derived messages. Nothing here tells anybody of an event; appending is in `log.py`.
"""

from collections.abc import Iterator
from typing import Any

from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.derive import Derivation
from dsh.session.entry_list import LINE_LIMIT, EntryList, HeldEntries
from dsh.session.envelope import check_envelope
from dsh.session.error import InvalidEvent
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.irregular import Irregularities
from dsh.session.message import Message
from dsh.session.relations import Relations
from dsh.session.request_header import canonical_header
from dsh.session.surface import Plan, SurfaceState
from dsh.session.value import FrozenDict, JsonObject, freeze, is_shallow, safe_int
from dsh.session.vocabulary import check_retired, check_stored


class FoldedLog:
    """The entries of one session and their folds. It grows by `load`; `Session` can be appended to."""

    __slots__ = (
        "__weakref__",
        "_derived",
        "_folded_header",
        "_irregular",
        "_last",
        "_log",
        "_relations",
        "_surface",
        "first_live_seq",
        "header",
        "id",
    )

    def __init__(self, header: SessionHeader) -> None:
        self.id = header.id
        self.header = header
        self.first_live_seq = 0
        """How many events were there when this process built the object."""
        self._log = EntryList()
        self._surface = SurfaceState()
        self._relations = Relations()
        self._last: dict[str, int] = {}
        self._folded_header: tuple[int, FrozenDict] | None = None
        self._derived = Derivation()
        self._irregular = Irregularities()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} length {self._log.length}>"

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

    def snapshot(self, stop: int | None = None) -> HeldEntries:
        """Everything up to seq `stop` as it is held now; it costs little memory beside the log."""
        return HeldEntries(self._log.copy(stop))

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

    def surface_from(self, position: int) -> list[int]:
        """The same from a position on, without a copy of what stands before."""
        return self._surface.nodes[position:]

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
        return self._irregular.found(self._log)

    def derive_messages(self) -> tuple[Message, ...]:
        """The messages the model sees, verbatim. Costs as much as there are new ones."""
        return self._derived.messages(self._surface, self._log.event)

    # -- building --------------------------------------------------------------------------------

    def load(self, entry: JsonObject | Entry, *, line: bytes | None = None, has_shape: bool = False) -> None:
        """Add one event of a seed or a stored log: envelope, payload, seq and surface are checked.

        An event that does not fit the open turn and step goes to `irregularities`, as do payloads with a
        defect that the log can be continued without. Nobody is told.

        Args:
            line: the JSON text that `entry` was decoded from; the log holds a short one in its place.
            has_shape: the caller has refused retired vocabulary, and checked messages and ends of turns.

        Raises:
            InvalidEvent, JsonError: the event breaks a rule.
        """
        if isinstance(entry, ChunkRun):
            self._load_run(entry)
            return
        stored = check_envelope(entry.to_json() if isinstance(entry, SessionEvent) else entry)
        kind: str = stored["type"]
        keeps_line = line is not None and len(line) <= LINE_LIMIT and is_shallow(line)
        data = stored["data"] if keeps_line else freeze(stored["data"], f"{kind}: data", stored=True)
        if not has_shape:
            check_retired(kind, data)
        if not has_shape or kind == "request/header":
            check_stored(kind, data)
        seq: Any = safe_int(stored["seq"])
        self._check_seq(kind, seq)
        plan = self._surface.plan(kind, seq, data, stored, self._log.event)
        try:
            self._relations.check(kind, data, plan.surface)
        except InvalidEvent as error:
            self._irregular.note(seq, error.message)
        self._fold(kind, data, plan)
        self._irregular.loaded = seq + 1
        if keeps_line and line is not None:
            self._log.add_line(kind, line)
        elif isinstance(entry, SessionEvent):
            self._log.add(entry)
        else:
            at: Any = safe_int(stored["time"])
            made = SessionEvent(kind, seq, at, data, plan.sources, plan.surface, "ignorable" in stored)
            self._log.add(made)

    def _load_run(self, run: ChunkRun) -> None:
        self._check_seq("assistant/chunk", run.seq0)
        try:
            self._relations.check_step("assistant/chunk", run.turn, run.step)
        except InvalidEvent as error:
            self._irregular.note(run.seq0, error.message)
        self._log.add(run)
        self._irregular.loaded = run.stop

    def _check_seq(self, kind: str, seq: int) -> None:
        if seq != self._log.length:
            raise InvalidEvent(f"{kind}: seq {seq} is not contiguous, {self._log.length} comes next")

    def _fold(self, kind: str, data: Any, plan: Plan) -> None:
        """Take the next event into account, which is about to enter the list."""
        seq = self._log.length
        self._surface.commit(seq, plan)
        self._relations.advance(kind, data)
        self._last[kind] = seq

    def _take_over(self, other: "FoldedLog") -> None:
        """Become what another log is now; what is immutable is shared."""
        self.first_live_seq = other.first_live_seq
        self._log = other._log.copy()
        self._surface = other._surface.copy()
        self._relations = other._relations.copy()
        self._last = dict(other._last)
        self._irregular = other._irregular.copy()
