"""The `sessionPersistence` service: what is stored of sessions, and how they become durable.

Live sessions need no call: the store's events drive them, and `sessions.flush(session)` is the barrier
after which everything appended so far survives a crash (`spec/persistence.md` §2).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from dsh.kernel import ServiceKey
from dsh.persistence.backend import Listing, Packed, RawLog
from dsh.persistence.error import PersistenceError
from dsh.persistence.view import LogView
from dsh.session.chunk_run import Entry
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.log import Session


class PreparedSession(Protocol):
    """The exclusive reservation of a stored session, repaired, for resuming it.

    Publishing `session` through the store binds the reservation to it; otherwise `release` gives it back.
    """

    @property
    def session(self) -> Session: ...

    async def release(self) -> None:
        """Give the session back. Does nothing once it was published."""


class SessionPersistence(Protocol):
    """Storage of sessions. One per context."""

    def locate(self, header: SessionHeader) -> Path | None:
        """Where the log is or would be. No I/O; a hint, never an authorisation."""

    async def create(self, header: SessionHeader) -> None:
        """Register a session that has no live object. Nothing is stored before the first append.

        Raises:
            SessionCollision: the id is tracked or stored.
        """

    async def append(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        """Store events behind the last stored one; durable on return, all or nothing.

        Raises:
            SessionNotFound: the id is neither registered nor stored.
            SessionCollision: a live session or a reservation owns the id.
            PersistenceError: the first event's seq is not the next one.
        """

    async def prepare(self, session_id: str) -> PreparedSession:
        """Repair and reserve a stored session for resume, and take its owner lock.

        Raises:
            SessionNotFound, SessionBusy, SessionCollision, SessionCorruption, SessionFormatUnsupported
        """

    async def load(self, session_id: str) -> LogView:
        """The balanced log, after its repair was written. Of a live session: what is durable.

        Raises:
            SessionNotFound, SessionBusy, SessionCorruption, SessionFormatUnsupported
            PersistenceError: the live session's turn is open.
        """

    async def inspect(self, session_id: str) -> LogView:
        """The same view without touching the disk; of a live session as it is now, perhaps within a turn."""

    async def read_from(self, session_id: str, seq: int) -> tuple[SessionEvent, ...]:
        """Stored events from `seq` on: no repair, no closers. Behind the end: nothing."""

    async def entries_from(self, session_id: str, seq: int) -> tuple[Entry, ...]:
        """The same with packed runs left packed: a long log stays small."""

    async def read_raw(self, session_id: str) -> RawLog:
        """The stored text of a log, also of one that we refuse to interpret."""

    async def when_retired(self, session_id: str) -> None:
        """Wait until the end of a session that has left the store is stored. At once where nothing is left.

        Raises:
            PersistenceError: it could not be stored.
        """

    async def list(self) -> Listing:
        """One entry per stored session, from headers alone."""

    async def fork(
        self,
        session_id: str,
        *,
        boundary: int | None = None,
        turn: int | None = None,
        child_id: str | None = None,
    ) -> SessionHeader:
        """Store a new session that begins with the log of this one, live or not, and answer its header.

        Args:
            boundary: seq of the last inherited event.
            turn: number of the last inherited turn, instead. With neither, everything is inherited.
            child_id: without it a new one.

        Raises:
            SessionCollision: the child's id is tracked or stored.
            SessionNotFound, SessionForkError, LogRefusal
            SessionNotDurable: nothing of the child is stored.
        """

    async def delete(self, session_id: str) -> None:
        """Remove a stored session that nobody has open, and what is kept beside its log.

        Raises:
            SessionLive: it is live here, or about to be.
            SessionNotFound, SessionBusy, OSError
        """

    async def pack(self, session_id: str) -> Packed:
        """Store a session that nobody has open in less space; its events stay the same.

        Raises:
            SessionLive: it is live here, or about to be.
            SessionNotFound, SessionBusy, PackingUnsupported, LogRefusal, OSError
        """

    def trouble(self, session_id: str) -> PersistenceError | None:
        """Why a session that is live, or was, is not being stored at present; None while all is well.

        It is what the next barrier raises, known from the first write that failed.
        """


PERSISTENCE: ServiceKey[SessionPersistence] = ServiceKey("sessionPersistence")
