"""Full text search: the index brought up to date, then asked for one page of the best hits."""

import asyncio
import json
import re
import uuid
from typing import Any, Protocol

from dsh.capabilities.session_query import (
    EventHit,
    EventPage,
    EventRecord,
    FoundSession,
    QueryProblem,
    SearchRequest,
    SessionHit,
    SessionPage,
)
from dsh.capabilities.session_query_error import SessionQueryError
from dsh.errors import CompositionError
from dsh.persistence.chain import Worker
from dsh.plugins.session_query_sqlite.corpus import Corpus
from dsh.plugins.session_query_sqlite.cursor import Cursors
from dsh.plugins.session_query_sqlite.index import Index, Match, Where, key_of
from dsh.plugins.session_query_sqlite.limits import Limits, checked_limit
from dsh.plugins.session_query_sqlite.predicates import EventTest, SessionTest, check_outer
from dsh.plugins.session_query_sqlite.reconcile import Reconciler
from dsh.plugins.session_query_sqlite.text import MATCH_END, MATCH_START
from dsh.unicode import valid

_SPACE = re.compile(r"\s+")


class Options(Limits, Protocol):
    """What the row's config says of the index."""

    @property
    def path(self) -> str: ...
    @property
    def journal_mode(self) -> str: ...
    @property
    def snippet_chars(self) -> int: ...


async def open_search(corpus: Corpus, options: Options) -> "Search":
    """Open the index.

    Raises:
        CompositionError: it cannot be opened.
    """
    worker = Worker()
    try:
        index = await worker.call(Index, options.path, options.journal_mode)
    except SessionQueryError as error:
        worker.stop()
        raise CompositionError(error.message, code=error.code, hint=error.hint) from error
    return Search(corpus, index, worker, options)


class Search:
    """One open index over the corpus. One search runs at a time."""

    def __init__(self, corpus: Corpus, index: Index, worker: Worker, options: Options) -> None:
        self._index = index
        self._worker = worker
        self._options = options
        self._reconciler = Reconciler(corpus, index, worker)
        self._cursors = Cursors(str(uuid.uuid4()))
        self._turn = asyncio.Lock()
        self._is_closed = False

    async def close(self) -> None:
        async with self._turn:
            self._is_closed = True
            await self._worker.call(self._index.close)
            self._worker.stop()

    async def events(self, request: SearchRequest) -> EventPage:
        """The best events. Raises SessionQueryError."""
        plan = _Plan(request, self._options)
        async with self._turn:
            sessions, problems, offset, generation = await self._begin("events", plan)
            matches = await self._worker.call(
                self._index.events, plan.phrase, plan.where, plan.limit + 1, offset
            )
            shown = matches[: plan.limit]
            hits = [await self._hit(sessions, plan.phrase, match) for match in shown]
        following = self._next("events", plan, generation, offset, len(matches))
        return EventPage(tuple(hits), following, problems)

    async def sessions(self, request: SearchRequest) -> SessionPage:
        """The best sessions. Raises SessionQueryError."""
        plan = _Plan(request, self._options)
        async with self._turn:
            sessions, problems, offset, generation = await self._begin("sessions", plan)
            matches = await self._worker.call(
                self._index.sessions, plan.phrase, plan.where, list(sessions), plan.limit + 1, offset
            )
            hits = [
                SessionHit(
                    sessions[one.best.session_id],
                    one.matches,
                    await self._hit(sessions, plan.phrase, one.best),
                )
                for one in matches[: plan.limit]
            ]
        following = self._next("sessions", plan, generation, offset, len(matches))
        return SessionPage(tuple(hits), following, problems)

    async def _begin(
        self, kind: str, plan: "_Plan"
    ) -> tuple[dict[str, FoundSession], tuple[QueryProblem, ...], int, str]:
        """The sessions to search, in their order; what cannot be; where the page begins; the generation."""
        if self._is_closed:
            raise SessionQueryError("INDEX_FAILED", "the search index was closed meanwhile")
        snapshot, problems = await self._reconciler.run()
        generation = await self._worker.call(self._index.generation)
        offset = self._cursors.offset(kind, plan.request, generation)
        sessions = {found.header.id: found for found in snapshot.sessions if plan.sessions(found)}
        allowed = [(session_id, found.source == "live") for session_id, found in sessions.items()]
        await self._worker.call(self._index.allow, allowed)
        return sessions, problems, offset, generation

    async def _hit(self, sessions: dict[str, FoundSession], phrase: str, match: Match) -> EventHit:
        text = await self._worker.call(self._index.marked, phrase, match)
        return EventHit(
            sessions[match.session_id],
            EventRecord(match.session_id, match.seq, match.type, match.time, match.surface),
            match.matches,
            snippet(text, self._options.snippet_chars),
        )

    def _next(self, kind: str, plan: "_Plan", generation: str, offset: int, found: int) -> str | None:
        if found <= plan.limit:
            return None
        return self._cursors.make(kind, plan.request, generation, offset + plan.limit)


class _Plan:
    """A request that was checked."""

    def __init__(self, request: SearchRequest, limits: Limits) -> None:
        if type(request) is not SearchRequest:
            raise SessionQueryError("INVALID_QUERY", f"no search request: {request!r:.60}")
        self.request = request
        self.limit = checked_limit(request.limit, limits)
        self.sessions = SessionTest(request.sessions)
        self.where = _where(EventTest(request.events))
        check_outer(request.sessions, request.events)
        self.phrase = request.query
        if type(request.query) is not str or not any(map(str.isalnum, request.query)):
            raise SessionQueryError("INVALID_QUERY", "a search needs at least one word")


def _where(test: EventTest) -> Where:
    """The predicates on events as SQL."""
    columns = {"sessionId": "session", "type": "type", "surface": "surface", "seq": "seq", "time": "time"}
    parts: list[str] = []
    values: list[Any] = []
    for field, accepted in test.values:
        given = sorted(value for value in accepted if value is not None)
        parts.append(f"d.{columns[field]} IN (SELECT value FROM json_each(?))")
        values.append(json.dumps([key_of(value) for value in given] if field == "sessionId" else given))
    for bounds in test.ranges:
        for sign, bound in ((">=", bounds.low), ("<=", bounds.high)):
            if bound is not None:
                parts.append(f"d.{columns[bounds.field]} {sign} ?")
                values.append(max(-(2**63), min(bound, 2**63 - 1)))
    for text in test.texts:
        parts.append("holds(d.text, ?)")
        values.append(valid(text))
    return Where("".join(f" AND {part}" for part in parts), tuple(values))


def snippet(marked: str, chars: int) -> str:
    """So many characters around the first match, on one line; what is cut off shows as `…`."""
    text = _SPACE.sub(" ", marked).strip()
    first = max(text.find(MATCH_START), 0)
    text = text.replace(MATCH_START, "").replace(MATCH_END, "")
    if len(text) <= chars:
        return text
    start = max(0, min(first - chars // 3, len(text) - chars))
    cut = text[start : start + chars]
    head = "…" if start else ""
    tail = "…" if start + chars < len(text) else ""
    return head + cut[len(head) : len(cut) - len(tail)] + tail
