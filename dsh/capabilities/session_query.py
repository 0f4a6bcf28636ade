"""The `sessionQuery` service: what is logged, live or stored, as one body that can be asked.

A live session wins over its stored copy and needs no storage. Stored ones are read without a change on disk.
Nothing here appends to a log (`spec/persistence.md` §12).
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, TypeAlias

import msgspec

from dsh.capabilities.session_query_error import Code
from dsh.kernel import CancelToken, ServiceKey
from dsh.session.chunk_run import Entry
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.message import Message

SurfaceState: TypeAlias = Literal["current", "shadowed", "log-only"]
"""Whether the model sees an event now, saw it until it was replaced, or never."""
Source: TypeAlias = Literal["live", "stored"]

SessionField: TypeAlias = Literal["id", "cwd", "parentSession", "origin", "agentPreset", "source"]
SessionNumber: TypeAlias = Literal["createdAt", "delegationDepth"]
EventField: TypeAlias = Literal["sessionId", "type", "surface"]
EventNumber: TypeAlias = Literal["seq", "time"]


class OneOf(msgspec.Struct, frozen=True):
    """A predicate: the field has one of these values. None stands for a field that is absent.

    No values at all match nothing.
    """

    field: SessionField | EventField
    values: tuple[str | None, ...]


class Between(msgspec.Struct, frozen=True):
    """A predicate: the number is within these bounds, both included; a bound of None is none."""

    field: SessionNumber | EventNumber
    low: int | None = None
    high: int | None = None


class Containing(msgspec.Struct, frozen=True):
    """A predicate on events: their searchable text holds this one, whatever the case and the white space."""

    text: str


SessionPredicate: TypeAlias = OneOf | Between
EventPredicate: TypeAlias = OneOf | Between | Containing


class FoundSession(msgspec.Struct, frozen=True):
    """One session and where it was found."""

    header: SessionHeader
    source: Source


class QueryProblem(msgspec.Struct, frozen=True):
    """A session, or a stored thing that should be one, which could not be asked. It hides no other."""

    place: str
    """The id, or the path where no id is known."""
    code: Code
    message: str


class SessionList(msgspec.Struct, frozen=True):
    """Sessions, the newest first, those of one moment by id; and what could not be listed."""

    sessions: tuple[FoundSession, ...]
    problems: tuple[QueryProblem, ...]


class SessionLog(msgspec.Struct, frozen=True):
    """A whole log at one moment, checked and balanced like one that is resumed."""

    session: FoundSession
    entries: tuple[Entry, ...]
    """Packed runs left packed; they never grow."""
    length: int
    """The number of events."""


class EventRecord(msgspec.Struct, frozen=True):
    """One event without its payload."""

    session_id: str
    seq: int
    type: str
    time: int
    """Epoch milliseconds."""
    surface: SurfaceState


class CurrentSurface(msgspec.Struct, frozen=True):
    """What the model would be shown."""

    session: FoundSession
    captured_through_seq: int
    """The last event that was there; -1 for an empty log."""
    events: tuple[SessionEvent, ...]
    messages: tuple[Message, ...]


class EventWindow(msgspec.Struct, frozen=True):
    """One event and its neighbours."""

    event: SessionEvent
    surface: SurfaceState
    before: tuple[SessionEvent, ...]
    after: tuple[SessionEvent, ...]


class SessionTitle(msgspec.Struct, frozen=True):
    """The title of one session, or why it could not be read. A session without a title has None for both."""

    session_id: str
    title: str | None
    problem: Code | None = None


class Lineage(msgspec.Struct, frozen=True):
    """Where a session comes from."""

    session: FoundSession
    ancestors: tuple[FoundSession, ...]
    """Parent, its parent and so on, as far as they are known."""
    unresolved_parent: str | None
    """The id that the last of them names and nobody has; None where the line is whole."""


class EventTrace(msgspec.Struct, frozen=True):
    """What an event was made from, and what became of it."""

    record: EventRecord
    replaced_by: int | None
    """The event that took its place on the surface."""
    replacement_chain: tuple[int, ...]
    """That one, the one that replaced it, and so on."""
    replaced_event_seqs: tuple[int, ...]
    """What it took the place of, in the order the model saw them."""
    source_event_seqs: tuple[int, ...]
    """What it cites."""
    derived_event_seqs: tuple[int, ...]
    """What cites it."""


class SearchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A search for a phrase. Sessions and events must pass all predicates, of which there are at most 14."""

    query: str
    """Words that stand next to each other, in this order; case and marks do not count.

    In scripts that are written without spaces any run of characters will do.
    """
    sessions: tuple[SessionPredicate, ...] = ()
    events: tuple[EventPredicate, ...] = ()
    limit: int | None = None
    """From 1 to the row's `maxLimit`; unset: its `defaultLimit`."""
    cursor: str | None = None
    """Of the page before; good until the index changes."""


class EventHit(msgspec.Struct, frozen=True):
    """An event that holds the phrase."""

    session: FoundSession
    record: EventRecord
    matches: int
    snippet: str
    """The text around the first match, on one line."""


class SessionHit(msgspec.Struct, frozen=True):
    """A session that holds the phrase."""

    session: FoundSession
    matches: int
    """In all its events that pass the predicates."""
    best: EventHit


class EventPage(msgspec.Struct, frozen=True):
    """The best hits: most matches, then the shorter text, then the later one."""

    hits: tuple[EventHit, ...]
    next_cursor: str | None
    problems: tuple[QueryProblem, ...]
    """Sessions that could not be searched."""


class SessionPage(msgspec.Struct, frozen=True):
    """The best sessions: most matches, then the newer one, then by id."""

    hits: tuple[SessionHit, ...]
    next_cursor: str | None
    problems: tuple[QueryProblem, ...]


class SessionQuery(Protocol):
    """Ask what is logged. Every method raises `SessionQueryError`, and nothing else on purpose.

    Where a `signal` is given and cancelled, the wait ends with the code ABORTED; reading goes on unseen.
    """

    async def list(self, *, signal: CancelToken | None = None) -> SessionList:
        """All sessions, from their headers alone."""

    async def filter_sessions(
        self, predicates: Sequence[SessionPredicate], *, signal: CancelToken | None = None
    ) -> SessionList:
        """The sessions that pass all predicates; problems are told as in `list`."""

    async def read_log(self, session_id: str, *, signal: CancelToken | None = None) -> SessionLog:
        """One session whole."""

    async def list_events(
        self,
        session_id: str,
        predicates: Sequence[EventPredicate] = (),
        *,
        signal: CancelToken | None = None,
    ) -> Iterable[EventRecord]:
        """The events of one session that pass all predicates, in order, as they are at this moment.

        The records are made one at a time, and again for each iteration.
        """

    async def filter_events(
        self,
        sessions: Sequence[SessionPredicate],
        events: Sequence[EventPredicate],
        *,
        limit: int | None = None,
        signal: CancelToken | None = None,
    ) -> tuple[tuple[EventRecord, ...], tuple[QueryProblem, ...]]:
        """The first `limit` (of the row, if unset) events that pass, in the order of sessions and seqs."""

    async def read_surface(self, session_id: str, *, signal: CancelToken | None = None) -> CurrentSurface:
        """What the model would be shown in one session."""

    async def read_event(
        self, session_id: str, seq: int, *, before: int = 0, after: int = 0, signal: CancelToken | None = None
    ) -> EventWindow:
        """One event with so many neighbours, as far as there are any."""

    async def titles(
        self, session_ids: Sequence[str], *, signal: CancelToken | None = None
    ) -> tuple[SessionTitle, ...]:
        """The titles of several sessions, in the order asked."""

    async def trace_lineage(self, session_id: str, *, signal: CancelToken | None = None) -> Lineage:
        """The ancestors of a session up to the first that is not known."""

    async def trace_event(
        self, session_id: str, seq: int, *, signal: CancelToken | None = None
    ) -> EventTrace:
        """What an event replaced, was replaced by, cites and is cited by."""

    async def search_events(self, request: SearchRequest, *, signal: CancelToken | None = None) -> EventPage:
        """The events that hold a phrase."""

    async def search_sessions(
        self, request: SearchRequest, *, signal: CancelToken | None = None
    ) -> SessionPage:
        """The sessions that hold a phrase."""


SESSION_QUERY: ServiceKey[SessionQuery] = ServiceKey("sessionQuery")
