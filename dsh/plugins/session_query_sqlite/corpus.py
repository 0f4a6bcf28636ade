"""Live sessions and stored ones as one body. A live session hides its stored copy and needs no storage."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from dsh.capabilities.session_query import FoundSession, QueryProblem, SessionList
from dsh.capabilities.session_query_error import SessionQueryError
from dsh.errors import DshError
from dsh.kernel import Cancelled, CancelToken, Context
from dsh.persistence.backend import StoredSession
from dsh.persistence.error import SessionCorruption, SessionNotFound
from dsh.persistence.service import PERSISTENCE, SessionPersistence
from dsh.persistence.view import LogView
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.store import SESSIONS

T = TypeVar("T")


class Snapshot:
    """What there was at one moment."""

    def __init__(
        self, found: list[FoundSession], stored: dict[str, StoredSession], problems: list[QueryProblem]
    ) -> None:
        self.sessions = tuple(sorted(found, key=lambda one: (-one.header.created_at, one.header.id)))
        """The newest first, those of one moment by id."""
        self.stored = stored
        """What storage says, by id, of every session that is not live."""
        self.problems = tuple(problems)

    def require(self, session_id: str) -> FoundSession:
        """The session with this id.

        Raises:
            SessionQueryError: there is none, or it is one of the problems.
        """
        for found in self.sessions:
            if found.header.id == session_id:
                return found
        for problem in self.problems:
            if problem.place == session_id:
                raise SessionQueryError(problem.code, problem.message)
        raise SessionQueryError("SESSION_NOT_FOUND", f"no session {session_id!r}")

    def listed(self, sessions: tuple[FoundSession, ...]) -> SessionList:
        return SessionList(sessions, self.problems)


class Corpus:
    """Reads for one row."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    @property
    def persistence(self) -> SessionPersistence | None:
        return self._ctx.get(PERSISTENCE)

    def live(self) -> tuple[Session, ...]:
        return self._ctx.use(SESSIONS).list()

    async def snapshot(self) -> Snapshot:
        """All sessions by their headers.

        Raises:
            SessionQueryError: storage cannot be listed.
        """
        problems: list[QueryProblem] = []
        listed: tuple[StoredSession, ...] = ()
        if (persistence := self.persistence) is not None:
            try:
                listing = await persistence.list()
            except (DshError, OSError) as error:
                raise refused(error, "the list of stored sessions") from error
            listed = listing.sessions
            problems += [QueryProblem(one.place, "CORRUPT_SESSION", one.reason) for one in listing.problems]
        live = {session.id: session.header for session in self.live()}
        stored: dict[str, StoredSession] = {}
        for one in listed:
            of_live = live.get(one.header.id)
            if of_live is None:
                stored[one.header.id] = one
            elif _identity(of_live) != _identity(one.header):
                del live[one.header.id]
                problems.append(_conflict(one))
        found = [FoundSession(header, "live") for header in live.values()]
        found += [FoundSession(one.header, "stored") for one in stored.values()]
        return Snapshot(found, stored, problems)

    async def read(self, session_id: str) -> tuple[FoundSession, LogView]:
        """A whole log as it is now.

        Raises:
            SessionQueryError: SESSION_NOT_FOUND, CORRUPT_SESSION or PERSISTENCE_FAILED.
        """
        if type(session_id) is not str or not session_id:
            raise SessionQueryError("SESSION_NOT_FOUND", f"{session_id!r:.60} is no session's id")
        session = self._ctx.use(SESSIONS).get(session_id)
        if session is not None:
            return FoundSession(session.header, "live"), LogView(session.copy())
        if (persistence := self.persistence) is None:
            raise SessionQueryError(
                "SESSION_NOT_FOUND", f"no session {session_id!r} is live, and none are stored"
            )
        try:
            view = await persistence.inspect(session_id)
        except (DshError, OSError) as error:
            raise refused(error, f"session {session_id!r}") from error
        return FoundSession(view.header, "stored"), view


def refused(error: DshError | OSError, what: str) -> SessionQueryError:
    """What storage said, under the code of a query. Only damage counts as damage."""
    message = error.message if isinstance(error, DshError) else f"{what}: {error.strerror or error}"
    hint = error.hint if isinstance(error, DshError) else ""
    if isinstance(error, SessionNotFound):
        return SessionQueryError("SESSION_NOT_FOUND", message, hint=hint)
    if isinstance(error, SessionCorruption):
        return SessionQueryError("CORRUPT_SESSION", message, hint=hint)
    return SessionQueryError("PERSISTENCE_FAILED", message, hint=hint)


async def waiting(work: Awaitable[T], signal: CancelToken | None) -> T:
    """Wait for `work`, or for the signal. The reason of an abort is that of the error's cause.

    Raises:
        SessionQueryError: ABORTED.
    """
    if signal is None:
        return await work
    task = asyncio.ensure_future(work)
    try:
        if signal.cancelled:
            task.cancel()
        return await signal.race(task)
    except Cancelled as error:
        raise SessionQueryError("ABORTED", "the query was cancelled") from error


def _identity(header: SessionHeader) -> tuple[object, ...]:
    return (
        header.version,
        header.id,
        header.created_at,
        header.cwd,
        header.parent_session,
        header.seed_length,
        header.delegation_depth or 0,
    )


def _conflict(stored: StoredSession) -> QueryProblem:
    return QueryProblem(
        stored.header.id,
        "SOURCE_CONFLICT",
        f"session {stored.header.id!r} is live, and {stored.place} holds another session with this id",
    )
