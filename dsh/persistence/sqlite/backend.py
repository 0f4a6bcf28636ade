"""The SQLite backend: all sessions in one database. Synchronous; the coordinator calls it in its worker.

A session open for writing is known by its owner lock and by the state that this process last saw of it.
"""

import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from dsh.persistence.backend import Listing, Packed, RawLog, StorageFigures, Tail
from dsh.persistence.error import (
    PackingUnsupported,
    RawLogUnsupported,
    SessionCollision,
    SessionFileChanged,
    SessionWritten,
)
from dsh.persistence.sqlite import reader, writer
from dsh.persistence.sqlite.database import Database, JournalMode
from dsh.persistence.sqlite.owners import MemoryOwners, Owner, Owners
from dsh.persistence.sqlite.path import MEMORY, create_parent
from dsh.persistence.sqlite.reader import RowState, StoredRows, place_of, revision_of
from dsh.persistence.sqlite.record import rows_of, shown
from dsh.session.chunk_run import Entry, entry_start, entry_stop
from dsh.session.header import SessionHeader

_log = logging.getLogger("dsh.session-persistence")


class _OpenSession:
    """A session this process writes: what it last saw of it, and the lock on it."""

    __slots__ = ("doubtful", "next_seq", "owner", "state")

    def __init__(self, owner: Owner | None) -> None:
        self.owner = owner
        self.state: RowState | None = None
        """None until it is stored."""
        self.next_seq = 0
        self.doubtful: RowState | None = None
        """What an append that failed would have left. Where only its last sync failed, it may be stored."""

    def may_have_left(self, found: RowState | None) -> bool:
        """Whether this state is what appends left that failed, and nobody has written since."""
        if found is None or self.doubtful is None or found.incarnation != self.doubtful.incarnation:
            return False
        known = 0 if self.state is None else self.state.revision
        return known < found.revision <= self.doubtful.revision


class SqliteBackend:
    """One database file, or `:memory:`."""

    def __init__(
        self,
        path: Path | str,
        *,
        journal_mode: JournalMode = "wal",
        busy_timeout_ms: int = 5000,
        pack_chunks: bool = True,
    ) -> None:
        """Nothing is opened yet.

        Args:
            busy_timeout_ms: how long a write waits for another program's, at most.
        """
        self.path = MEMORY if str(path) == MEMORY else str(Path(path).absolute())
        self.name = f"SQLite sessions in {self.path}"
        self._database = Database(self.path, journal_mode, busy_timeout_ms)
        self._owners = MemoryOwners() if self._database.is_memory else Owners(Path(self.path))
        self._pack_chunks = pack_chunks
        self._open: dict[str, _OpenSession] = {}
        self._in_memory: set[str] = set()
        """Ids stored in a database in memory, for who may not ask it."""

    def check(self) -> None:
        """Open the database, if there is one, and refuse it unless it is one of sessions.

        Raises:
            WrongDatabase, UnsafePath, SessionCorruption, DatabaseBusy, OSError
        """
        self._database.check()

    # -- looking -----------------------------------------------------------------------------------

    def locate(self, header: SessionHeader) -> Path | None:
        """No file holds one session alone."""
        return None

    def is_taken(self, header: SessionHeader) -> bool:
        """Whether the id is stored, as far as the database answers at once."""
        return header.id in self._in_memory or self._database.holds(header.id)

    def find(self, session_id: str) -> str | None:
        """Where a session is stored, or None."""
        with self._database.reading() as db:
            if db is None or reader.read_state(db, session_id) is None:
                return None
        return place_of(self.path, session_id)

    def unseen(self) -> "list[str]":
        """A database is read as a whole or not at all."""
        return []

    def ids(self, prefix: str = "") -> "list[str]":
        """The ids of stored sessions that begin so."""
        with self._database.reading() as db:
            if db is None:
                return []
            found = [shown(row[0]) for row in db.execute("SELECT id FROM sessions")]
        return sorted(session_id for session_id in found if session_id.startswith(prefix))

    # -- reading -----------------------------------------------------------------------------------

    def load(self, session_id: str) -> StoredRows | None:
        """All of a stored session, or None.

        Raises:
            SessionCorruption, SessionFormatUnsupported, WrongDatabase, DatabaseBusy, OSError
        """
        place = place_of(self.path, session_id)
        with self._database.reading() as db:
            session = None if db is None else reader.read_session(db, session_id, place)
            if db is None or session is None:
                return None
            return reader.read_stored(db, session, place, revision_of(self._database.token, session.state))

    def load_from(self, session_id: str, seq: int) -> Tail | None:
        """The stored events from `seq` on, or None; rows before them are not read. Raises as `load`."""
        place = place_of(self.path, session_id)
        with self._database.reading() as db:
            session = None if db is None else reader.read_session(db, session_id, place)
            if db is None or session is None:
                return None
            return reader.read_tail(db, session, seq, place)

    def revision(self, session_id: str) -> str | None:
        """The revision of a stored session, or None."""
        with self._database.reading() as db:
            state = None if db is None else reader.read_state(db, session_id)
            return None if state is None else revision_of(self._database.token, state)

    def writer(self, session_id: str) -> str | None:
        """Who has the stored session open for writing, or None."""
        return self._owners.told(session_id)

    def read_raw(self, session_id: str) -> RawLog | None:
        """A database keeps no text.

        Raises:
            RawLogUnsupported: the session is stored.
        """
        place = self.find(session_id)
        if place is not None:
            raise RawLogUnsupported(place)
        return None

    def figures(self, session_id: str) -> StorageFigures | None:
        """What the storage of a session consists of, or None. Raises as `load`."""
        place = place_of(self.path, session_id)
        with self._database.reading() as db:
            session = None if db is None else reader.read_session(db, session_id, place)
            return None if db is None or session is None else reader.read_figures(db, session, place)

    def list(self) -> Listing:
        """Headers of all stored sessions; what cannot be listed becomes a problem of its own."""
        with self._database.reading() as db:
            if db is None:
                return Listing((), ())
            sessions, problems = reader.list_sessions(db, self.path, self._database.token)
        return Listing(tuple(sessions), tuple(problems))

    # -- writing -----------------------------------------------------------------------------------

    def open(self, session_id: str) -> StoredRows | None:
        """Take the owner lock of a stored session, then read it. None when nothing is stored.

        Raises:
            SessionBusy: somebody else writes it.
            SessionCorruption, SessionFormatUnsupported, WrongDatabase, DatabaseBusy, OSError: the lock is
                given back.
        """
        place = self.find(session_id)
        if place is None:
            return None
        owner = self._owners.acquire(session_id, place)
        try:
            stored = self.load(session_id)
        except BaseException:
            owner.release()
            raise
        if stored is None:
            owner.release()
            return None
        session = _OpenSession(owner)
        session.state, session.next_seq = stored.state, stored.next_seq
        self._open[session_id] = session
        return stored

    def append(self, header: SessionHeader, entries: Sequence[Entry]) -> None:
        """Store entries behind what is there, or the header and these as a new session. Durable on return.

        Raises:
            SessionBusy, SessionCollision, SessionFileChanged, WrongDatabase, UnsafePath, DatabaseBusy,
            SessionCorruption, OSError: nothing was stored.
        """
        session = self._open.get(header.id)
        if session is None:
            session = self._reserve(header.id)
        elif session.owner is None:
            session.owner = self._owners.acquire(header.id, place_of(self.path, header.id))
        rows = list(rows_of(entries, packs=self._pack_chunks))
        first = entry_start(entries[0]) if entries else session.next_seq
        state: RowState | None = None
        try:
            with self._database.writing(creates=session.state is None) as db:
                state = self._count_append(db, header, session, first)
                writer.insert_rows(db, header.id, rows)
        except BaseException:
            session.doubtful = state or session.doubtful
            raise
        session.state, session.doubtful = state, None
        session.next_seq = entry_stop(entries[-1]) if entries else first
        if self._database.is_memory:
            self._in_memory.add(header.id)

    def _reserve(self, session_id: str) -> _OpenSession:
        """The lock on a session that is not stored yet. A database that is none of ours is left alone."""
        self._database.check()
        if not self._database.is_memory:
            create_parent(Path(self.path))
        session = _OpenSession(self._owners.acquire(session_id, place_of(self.path, session_id)))
        self._open[session_id] = session
        return session

    def _count_append(
        self, db: sqlite3.Connection, header: SessionHeader, session: _OpenSession, first: int
    ) -> RowState:
        """Check that the session is as it is known, and count the write that comes now."""
        seen, found = session.state, reader.read_state(db, header.id)
        if session.may_have_left(found):
            writer.take_back(db, header.id, session.next_seq)
            seen = found
        if seen is not None:
            return self._count(db, header.id, seen, session.next_seq, first)
        if found is None:
            return writer.insert_session(db, header)
        self.release(header.id)
        raise SessionCollision(header.id, f"a session with this id is stored in {self.path}")

    def _count(
        self, db: sqlite3.Connection, session_id: str, seen: RowState, stored: int, first: int
    ) -> RowState:
        place = place_of(self.path, session_id)
        return writer.count_write(db, session_id, seen, stored=stored, first=first, place=place)

    def repair(self, stored: StoredRows, closers: Sequence[Entry], recovered: Sequence[Entry]) -> None:
        """Remove the torn tail of an open session and add closers, at once or not at all.

        What is removed is kept beside the database. Nothing is ever read out of a torn row, so there is
        nothing in `recovered`.

        Raises:
            SessionFileChanged: the session is not as it was read; it stays so.
            DatabaseBusy, OSError: the session is as it was.
        """
        if stored.torn is None:
            if closers:
                self.append(stored.header, closers)
            return
        session_id, session = stored.header.id, self._open[stored.header.id]
        added = (*recovered, *closers)
        rows = list(rows_of(added, packs=self._pack_chunks))
        with self._database.writing(creates=False) as db:
            if reader.read_state(db, session_id) != stored.state:
                raise SessionFileChanged(stored.place, "the session changed")
            removed = writer.remove_tail(db, session_id, stored.torn, stored.place)
            aside = self._owners.keep_aside(session_id, removed, stored.torn.seq)
            next_seq = stored.next_seq - stored.torn.recovered
            state = self._count(db, session_id, stored.state, next_seq, next_seq)
            writer.insert_rows(db, session_id, rows)
        session.state = state
        session.next_seq = next_seq + sum(entry_stop(entry) - entry_start(entry) for entry in added)
        _log.warning(
            "%s: %s; %s were removed%s",
            stored.place,
            stored.torn.reason,
            stored.torn.extent,
            "" if aside is None else f" and kept in {aside}",
        )

    def rest(self, session_id: str) -> None:
        """Give the lock back but remember the state: the next append takes the lock again."""
        session = self._open.get(session_id)
        if session is not None and session.owner is not None:
            session.owner.release()
            session.owner = None

    def release(self, session_id: str) -> None:
        """Forget an open session and give its lock back."""
        self.rest(session_id)
        self._open.pop(session_id, None)

    def delete(self, session_id: str, *, revision: str | None = None) -> bool:
        """Remove a stored session, under its owner lock; False when there is none.

        Raises:
            SessionBusy: somebody writes it.
            SessionWritten: it has another revision than this one; it is still there.
            WrongDatabase, DatabaseBusy: it is still there.
            OSError: it is still there; or, where only the last sync failed, gone, but not yet for good.
        """
        place = self.find(session_id)
        if place is None:
            self._owners.clear(session_id)  # of a deletion that failed when the session was gone
            return False
        owner = self._owners.acquire(session_id, place)
        try:
            with self._database.writing(creates=False) as db:
                state = reader.read_state(db, session_id)
                now = None if state is None else revision_of(self._database.token, state)
                if revision is not None and now not in (None, revision):
                    raise SessionWritten(place)
                was_there = writer.delete_session(db, session_id)
            self._open.pop(session_id, None)
            self._in_memory.discard(session_id)
            self._database.forget_deleted()
            self._owners.clear(session_id)
        finally:
            owner.release()
        return was_there

    def sweep(self, before_ms: int) -> int:
        """Remove the lock files of processes that were killed. Answers how many."""
        return self._owners.sweep(before_ms)

    def pack(self, session_id: str) -> Packed | None:
        """There is nothing to pack.

        Raises:
            PackingUnsupported: the session is stored.
        """
        place = self.find(session_id)
        if place is not None:
            raise PackingUnsupported(place)
        return None

    def close(self) -> None:
        """Give every lock back and close the database."""
        for session_id in list(self._open):
            self.release(session_id)
        self._database.close()
