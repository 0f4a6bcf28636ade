"""The queries themselves: exact reads over the corpus, and searches where the row opened an index."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dsh.capabilities.session_query import (
    CurrentSurface,
    EventPage,
    EventPredicate,
    EventRecord,
    EventTrace,
    EventWindow,
    FoundSession,
    Lineage,
    QueryProblem,
    SearchRequest,
    SessionList,
    SessionLog,
    SessionPage,
    SessionPredicate,
    SessionTitle,
)
from dsh.capabilities.session_query_error import SessionQueryError
from dsh.kernel import CancelToken
from dsh.persistence.view import LogView
from dsh.plugins.session_query_sqlite.corpus import Corpus, waiting
from dsh.plugins.session_query_sqlite.limits import Limits, checked_limit
from dsh.plugins.session_query_sqlite.predicates import EventTest, SessionTest, checked_list
from dsh.plugins.session_query_sqlite.records import Records, record_of
from dsh.plugins.session_query_sqlite.trace import surface_of, trace
from dsh.session.event import SessionEvent

if TYPE_CHECKING:
    from dsh.plugins.session_query_sqlite.search import Search


class Queries:
    """Implements `dsh.capabilities.session_query.SessionQuery`."""

    def __init__(self, corpus: Corpus, limits: Limits) -> None:
        self.corpus = corpus
        self._limits = limits
        self._inspecting = asyncio.Semaphore(limits.persisted_inspect_concurrency)
        self.index: Search | None = None
        """Set by the row once it is open."""

    async def list(self, *, signal: CancelToken | None = None) -> SessionList:
        return await self.filter_sessions((), signal=signal)

    async def filter_sessions(
        self, predicates: Sequence[SessionPredicate], *, signal: CancelToken | None = None
    ) -> SessionList:
        test = SessionTest(predicates)
        snapshot = await waiting(self.corpus.snapshot(), signal)
        return snapshot.listed(tuple(filter(test, snapshot.sessions)))

    async def read_log(self, session_id: str, *, signal: CancelToken | None = None) -> SessionLog:
        found, view = await waiting(self.corpus.read(session_id), signal)
        return SessionLog(found, tuple(view.entries()), view.length)

    async def list_events(
        self,
        session_id: str,
        predicates: Sequence[EventPredicate] = (),
        *,
        signal: CancelToken | None = None,
    ) -> Iterable[EventRecord]:
        test = EventTest(predicates)
        _, view = await waiting(self.corpus.read(session_id), signal)
        return Records(session_id, view.entries(), test)

    async def filter_events(
        self,
        sessions: Sequence[SessionPredicate],
        events: Sequence[EventPredicate],
        *,
        limit: int | None = None,
        signal: CancelToken | None = None,
    ) -> tuple[tuple[EventRecord, ...], tuple[QueryProblem, ...]]:
        which, test = SessionTest(sessions), EventTest(events)
        most = checked_limit(limit, self._limits)
        return await waiting(self._filtered(which, test, most), signal)

    async def _filtered(
        self, which: SessionTest, test: EventTest, limit: int
    ) -> tuple[tuple[EventRecord, ...], tuple[QueryProblem, ...]]:
        snapshot = await self.corpus.snapshot()
        problems = [*snapshot.problems]
        passed: list[EventRecord] = []
        for found in filter(which, snapshot.sessions):
            session_id = found.header.id
            try:
                _, view = await self.corpus.read(session_id)
            except SessionQueryError as error:
                if error.reason != "SESSION_NOT_FOUND":  # else it went since it was listed
                    problems.append(QueryProblem(session_id, error.reason, error.message))
                continue
            for record in Records(session_id, view.entries(), test):
                passed.append(record)
                if len(passed) == limit:
                    return tuple(passed), tuple(problems)
        return tuple(passed), tuple(problems)

    async def read_surface(self, session_id: str, *, signal: CancelToken | None = None) -> CurrentSurface:
        found, view = await waiting(self.corpus.read(session_id), signal)
        events = tuple(map(view.event, view.surface_nodes))
        return CurrentSurface(found, view.length - 1, events, view.derive_messages())

    async def read_event(
        self, session_id: str, seq: int, *, before: int = 0, after: int = 0, signal: CancelToken | None = None
    ) -> EventWindow:
        most = self._limits.read_window_max
        for side, count in (("before", before), ("after", after)):
            if type(count) is not int or not 0 <= count <= most:
                raise SessionQueryError("INVALID_WINDOW", f"{side} is from 0 to {most}, found {count!r:.60}")
        _, view = await waiting(self.corpus.read(session_id), signal)
        event = _event(view, seq)
        return EventWindow(
            event,
            surface_of(view.entries()).state(seq),
            tuple(view.events(max(0, seq - before), seq)),
            tuple(view.events(seq + 1, min(seq + 1 + after, view.length))),
        )

    async def titles(
        self, session_ids: Sequence[str], *, signal: CancelToken | None = None
    ) -> tuple[SessionTitle, ...]:
        return await waiting(self._titles(checked_list(session_ids, "ids of sessions")), signal)

    async def _titles(self, session_ids: Sequence[str]) -> tuple[SessionTitle, ...]:
        return tuple(await asyncio.gather(*map(self._title, session_ids)))

    async def _title(self, session_id: str) -> SessionTitle:
        try:
            async with self._inspecting:
                _, view = await self.corpus.read(session_id)
        except SessionQueryError as error:
            return SessionTitle(session_id, None, error.reason)
        for entry in reversed(view.entries()):
            if isinstance(entry, SessionEvent) and entry.type == "session/title":
                title = entry.data.get("title")
                return SessionTitle(session_id, title if type(title) is str else None)
        return SessionTitle(session_id, None)

    async def trace_lineage(self, session_id: str, *, signal: CancelToken | None = None) -> Lineage:
        snapshot = await waiting(self.corpus.snapshot(), signal)
        first = snapshot.require(session_id)
        known = {found.header.id: found for found in snapshot.sessions}
        ancestors: list[FoundSession] = []
        seen = {session_id}
        parent = first.header.parent_session
        while parent is not None and (found := known.get(parent)) is not None:
            if parent in seen:
                raise SessionQueryError(
                    "INVALID_LINEAGE", f"session {session_id!r}: {parent!r} is among its own ancestors"
                )
            seen.add(parent)
            ancestors.append(found)
            parent = found.header.parent_session
        return Lineage(first, tuple(ancestors), parent)

    async def trace_event(
        self, session_id: str, seq: int, *, signal: CancelToken | None = None
    ) -> EventTrace:
        _, view = await waiting(self.corpus.read(session_id), signal)
        event = _event(view, seq)
        surface = surface_of(view.entries())
        return trace(record_of(session_id, seq, event.type, event.time, surface), event, surface)

    async def search_events(self, request: SearchRequest, *, signal: CancelToken | None = None) -> EventPage:
        return await waiting(self._index().events(request), signal)

    async def search_sessions(
        self, request: SearchRequest, *, signal: CancelToken | None = None
    ) -> SessionPage:
        return await waiting(self._index().sessions(request), signal)

    def _index(self) -> "Search":
        if self.index is None:
            raise SessionQueryError(
                "SEARCH_DISABLED",
                "full text search is off",
                hint="set openAt: startup on the row session-query-sqlite",
            )
        return self.index


def _event(view: LogView, seq: int) -> SessionEvent:
    if type(seq) is not int or not 0 <= seq < view.length:
        raise SessionQueryError(
            "EVENT_NOT_FOUND",
            f"session {view.header.id!r} has no event {seq!r:.60}; it has {view.length} events",
        )
    return view.event(seq)
