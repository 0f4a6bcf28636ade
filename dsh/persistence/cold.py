"""Sessions that nobody has live: read, checked, repaired, and written without a live object.

State: the views that were read last, kept while their file does not change; and how long the logs are that
are written here. The caller sees to it that only one operation on an id runs at a time.
"""

import errno
from collections.abc import Sequence
from typing import Any

from dsh.persistence.backend import Backend, Packed
from dsh.persistence.chain import Worker
from dsh.persistence.error import PersistenceError, SessionCollision, SessionNotDurable, SessionNotFound
from dsh.persistence.view import LogView, build_view
from dsh.session.chunk_run import ChunkRun, Entry, entry_start, entry_stop
from dsh.session.envelope import event_from_json
from dsh.session.header import SessionHeader
from dsh.session.vocabulary import check_retired, check_stored_message


class _Written:
    """A session that is written without a live object: its header, and the seq that comes next."""

    __slots__ = ("cursor", "header")

    def __init__(self, header: SessionHeader, cursor: int) -> None:
        self.header, self.cursor = header, cursor


class ColdLogs:
    """The logs of one backend, as somebody finds them who does not know them yet."""

    def __init__(self, backend: Backend[Any], worker: Worker, *, cached_views: int) -> None:
        self._backend = backend
        self._worker = worker
        self._cached_views = cached_views
        self._views: dict[str, tuple[str, LogView]] = {}
        """By id: the revision, and what was read then; the one used last is the last."""
        self._written: dict[str, _Written] = {}

    def forget(self, session_id: str) -> SessionHeader | None:
        """Somebody else takes the session over. Answers the header it was registered with, if it was."""
        self._views.pop(session_id, None)
        written = self._written.pop(session_id, None)
        return None if written is None else written.header

    async def let_go(self, session_id: str) -> None:
        """Nobody has the session live any more: give its owner lock back."""
        self.forget(session_id)
        await self._worker.call(self._backend.release, session_id)

    def knows(self, session_id: str) -> bool:
        """Whether the id was registered or is written here."""
        return session_id in self._written

    async def create(self, header: SessionHeader) -> None:
        """Register a session; nothing is stored before its first append.

        Raises:
            SessionCollision: the id is registered or stored.
        """
        if header.id in self._written or await self._worker.call(self._backend.find, header.id) is not None:
            raise SessionCollision(header.id, "a session with this id is stored already")
        self._written[header.id] = _Written(header, 0)

    async def append(self, session_id: str, entries: Sequence[Entry]) -> None:
        """Store entries behind the last ones; a session that is only stored is repaired first.

        Raises:
            PersistenceError: the first seq is not the next one, or there is a gap.
            InvalidEvent, JsonError: an event that no reader would accept, or that is no JSON.
            SessionNotFound, SessionBusy, SessionCorruption, SessionFormatUnsupported, OSError
        """
        try:
            written = self._written.get(session_id)
            if written is None:
                view = await self.repair(session_id)
                written = _Written(view.header, view.length)
            stop = _follows(session_id, written.cursor, entries)
            entries = [_checked(entry) for entry in entries]
            self._views.pop(session_id, None)
            await self._worker.call(self._backend.append, written.header, entries)
        finally:
            await self._worker.call(self._backend.rest, session_id)
        written.cursor = stop
        self._written[session_id] = written

    async def inspect(self, session_id: str) -> LogView:
        """The repaired view, with nothing changed on disk.

        Raises:
            SessionNotFound, SessionCorruption, SessionFormatUnsupported, OSError
        """
        revision = await self._worker.call(self._backend.revision, session_id)
        kept = self._views.pop(session_id, None)
        if kept is None or kept[0] != revision:
            kept = await self._read(session_id)
        self._views[session_id] = kept
        while len(self._views) > self._cached_views:
            del self._views[next(iter(self._views))]
        return kept[1]

    async def entries_from(self, session_id: str, seq: int) -> tuple[Entry, ...]:
        """Stored events from `seq` on, packed, without closers. What stands before is not checked."""
        from dsh.persistence.tail import read_tail

        found = await self._worker.call(read_tail, self._backend, session_id, seq)
        if found is None:
            raise SessionNotFound(session_id)
        return found

    async def _read(self, session_id: str) -> tuple[str, LogView]:
        stored = await self._worker.call(self._backend.load, session_id)
        if stored is None:
            raise SessionNotFound(session_id)
        return stored.revision, await self._worker.call(build_view, stored)

    async def delete(self, session_id: str) -> None:
        """Remove a session. Raises as `Backend.delete`, and SessionNotFound."""
        registered = self.forget(session_id)
        await self._worker.call(self._backend.release, session_id)
        if not await self._worker.call(self._backend.delete, session_id) and registered is None:
            raise SessionNotFound(session_id)

    async def pack(self, session_id: str) -> Packed:
        """Store a session in less space. Raises as `Backend.pack`, and SessionNotFound."""
        await self.let_go(session_id)
        packed = await self._worker.call(self._backend.pack, session_id)
        if packed is None:
            raise SessionNotFound(session_id)
        return packed

    async def repair(self, session_id: str) -> LogView:
        """Open a log for writing and write its repair. Validated whole before anything is cut off.

        Raises:
            SessionBusy: another process writes it.
            SessionNotDurable: it cannot be written.
            SessionNotFound, SessionCorruption, SessionFormatUnsupported, OSError: the log is as it was.
        """
        await self._worker.call(self._backend.release, session_id)
        try:
            stored = await self._worker.call(self._backend.open, session_id)
        except OSError as error:
            raise self._told(session_id, error) from error
        if stored is None:
            raise SessionNotFound(session_id)
        self._written.pop(session_id, None)
        try:
            view = await self._worker.call(build_view, stored)
            if view.needs_repair:
                self._views.pop(session_id, None)
                await self._worker.call(self._backend.repair, stored, view.closers, view.recovered)
        except OSError as error:
            await self._worker.call(self._backend.release, session_id)
            raise SessionNotDurable(session_id, stored.place, error) from error
        except BaseException:
            await self._worker.call(self._backend.release, session_id)
            raise
        return view

    def _told(self, session_id: str, error: OSError) -> Exception:
        """What to tell of a log that could not be opened for writing: that it cannot be written, if so."""
        is_lock = str(error.filename or "").endswith(".lock")
        if is_lock or error.errno in (errno.EROFS, errno.ENOSPC, errno.EDQUOT):
            return SessionNotDurable(session_id, self._backend.name, error)
        return error


def _follows(session_id: str, seq: int, entries: Sequence[Entry]) -> int:
    """The seq after entries that continue a log whose next seq is `seq`.

    Raises:
        PersistenceError: they do not.
    """
    for entry in entries:
        found = entry_start(entry)
        if found != seq:
            raise PersistenceError(f"session {session_id!r}: expected seq {seq}, found {found}")
        seq = entry_stop(entry)
    return seq


def _checked(entry: Entry) -> Entry:
    """The entry, detached, once it is known that it can be stored and read again.

    Raises:
        InvalidEvent, JsonError: it cannot.
    """
    if isinstance(entry, ChunkRun):
        return entry
    check_retired(entry.type, entry.data)
    check_stored_message(entry.type, entry.data)
    return event_from_json(entry.to_json())
