"""Brings the index up to date with the corpus before a search: only what has changed is read.

Of a stored session its revision says whether it has; of a live one only what was appended since is looked at.
"""

import weakref
from collections.abc import Iterator

from dsh.capabilities.session_query import QueryProblem, SurfaceState
from dsh.capabilities.session_query_error import SessionQueryError
from dsh.persistence.chain import Worker
from dsh.persistence.view import LogView
from dsh.plugins.session_query_sqlite.corpus import Corpus, Snapshot
from dsh.plugins.session_query_sqlite.index import Document, Index, Known
from dsh.plugins.session_query_sqlite.text import TYPES, searchable
from dsh.plugins.session_query_sqlite.trace import surface_of
from dsh.session.event import SURFACE_TYPES, SessionEvent
from dsh.session.log import Session


class _Followed:
    """How far a live session is indexed."""

    __slots__ = ("generation", "length", "session")

    def __init__(self, session: Session) -> None:
        self.session = weakref.ref(session)
        self.length = 0
        self.generation = session.replace_generation


class Reconciler:
    """State: the live sessions that are indexed so far. One at a time may run."""

    def __init__(self, corpus: Corpus, index: Index, worker: Worker) -> None:
        self._corpus = corpus
        self._index = index
        self._worker = worker
        self._followed: dict[str, _Followed] = {}

    async def run(self) -> tuple[Snapshot, tuple[QueryProblem, ...]]:
        """Index what is new. Answers the sessions there are, and those that cannot be searched.

        Raises:
            SessionQueryError: PERSISTENCE_FAILED or INDEX_FAILED.
        """
        snapshot = await self._corpus.snapshot()
        is_new = await self._stored(snapshot)
        if is_new or not self._is_live_still(snapshot):  # look once whether it still changes
            snapshot = await self._corpus.snapshot()
            await self._stored(snapshot)
        await self._live()
        known = await self._worker.call(self._index.known)
        unread = [
            QueryProblem(one, held.problem, held.message or "")
            for one in snapshot.stored
            if (held := known.get(one)) is not None and held.problem is not None
        ]
        return snapshot, (*snapshot.problems, *unread)

    def _is_live_still(self, snapshot: Snapshot) -> bool:
        """Whether the same sessions are live as when the snapshot was taken."""
        ids = {session.id for session in self._corpus.live()}
        return ids == {found.header.id for found in snapshot.sessions if found.source == "live"}

    async def _stored(self, snapshot: Snapshot) -> bool:
        """Index the stored sessions whose revision is another one; whether any could be read."""
        known = await self._worker.call(self._index.known)
        live = {found.header.id for found in snapshot.sessions if found.source == "live"}
        if gone := known.keys() - snapshot.stored.keys() - live:
            await self._worker.call(self._index.drop, sorted(gone))
        changed = [
            (session_id, one.revision)
            for session_id, one in snapshot.stored.items()
            if session_id not in known or known[session_id].revision != one.revision
        ]
        is_any = False
        for session_id, revision in changed:
            try:
                _, view = await self._corpus.read(session_id)
            except SessionQueryError as error:
                is_lasting = error.reason == "CORRUPT_SESSION"
                problem = Known(revision if is_lasting else "", error.reason, error.message)
                if known.get(session_id) != problem:
                    await self._worker.call(self._index.put, session_id, problem, ())
            else:
                await self._worker.call(self._put, session_id, revision, view)
                is_any = True
        return is_any

    def _put(self, session_id: str, revision: str, view: LogView) -> None:
        self._index.put(session_id, Known(revision, None, None), _documents(view))

    async def _live(self) -> None:
        live = {session.id: session for session in self._corpus.live()}
        for session_id, followed in list(self._followed.items()):
            if live.get(session_id) is not followed.session():
                del self._followed[session_id]
                await self._worker.call(self._index.drop_live, session_id)
        for session in live.values():
            followed = self._followed.setdefault(session.id, _Followed(session))
            length, generation = session.length, session.replace_generation
            if length == followed.length:
                continue
            new, surface = _grown(session, followed.length), None
            if generation != followed.generation:
                surface = session.surface_nodes
            if new or surface is not None:
                await self._worker.call(self._index.grow_live, session.id, new, surface)
            followed.length, followed.generation = length, generation


def _grown(session: Session, start: int) -> list[Document]:
    """The documents of a live session from a seq on. Packed deltas are passed over unseen."""
    nodes = frozenset(session.surface_nodes)
    found = []
    for event in session.select(*TYPES, start=start):
        state: SurfaceState = "log-only"
        if event.type in SURFACE_TYPES:
            state = "current" if event.seq in nodes else "shadowed"
        if text := searchable(event):
            found.append(Document(event.seq, event.type, event.time, state, text))
    return found


def _documents(view: LogView) -> Iterator[Document]:
    entries = view.entries()
    surface = surface_of(entries)
    for entry in entries:
        if isinstance(entry, SessionEvent) and entry.type in TYPES and (text := searchable(entry)):
            yield Document(entry.seq, entry.type, entry.time, surface.state(entry.seq), text)
