"""The live sessions and their logs, each from its first word to the end that is stored."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from dsh.kernel.task import retrieve
from dsh.persistence.backend import Backend
from dsh.persistence.chain import Chains, Worker
from dsh.persistence.cold import ColdLogs
from dsh.persistence.error import PersistenceError, SessionCollision
from dsh.persistence.live import LiveLog
from dsh.persistence.reservation import Reservations
from dsh.persistence.view import build_view, same_prefix
from dsh.session.log import Session

_log = logging.getLogger("dsh.session-persistence")


class Following:
    """State: by session id, the log of the live session, and the retirement of one that was live."""

    def __init__(
        self,
        backend: Backend[Any],
        *,
        chains: Chains,
        worker: Worker,
        cold: ColdLogs,
        reservations: Reservations,
        open_log: Callable[[Session], LiveLog],
    ) -> None:
        """`open_log` makes the log of a live session, with nothing stored yet."""
        self._backend = backend
        self._chains = chains
        self._worker = worker
        self._cold = cold
        self._reservations = reservations
        self._open_log = open_log
        self._live: dict[str, LiveLog] = {}
        self._retiring: dict[str, tuple[LiveLog, asyncio.Task[None]]] = {}
        self._is_leaving = False

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._live

    def get(self, session_id: str) -> LiveLog | None:
        """The log of a session that is live."""
        return self._live.get(session_id)

    def trouble(self, session_id: str) -> PersistenceError | None:
        """Why a session that is or was live is not being stored."""
        live = self._live.get(session_id)
        if live is None and (retiring := self._retiring.get(session_id)) is not None:
            live = retiring[0]
        return None if live is None else live.trouble

    # -- the beginning -----------------------------------------------------------------------------

    def attach(self, session: Session, *, is_new: bool = False) -> LiveLog:
        """Follow a live session. What storage says of its id is compared in the background.

        Args:
            is_new: the session is being announced; what is known at once vetoes it.

        Raises:
            SessionCollision: the id is reserved for, written by or stored from another session.
        """
        live = self._live.get(session.id)
        if live is not None:
            if live.session is session:
                return live
            if not live.is_unused:
                raise SessionCollision(session.id, "another live session with this id is being stored")
        reservation = self._reservations.use(session)
        live = self._open_log(session)
        if reservation is not None:
            live.cursor = reservation.cursor
            live.touch()
        else:
            if is_new and session.first_live_seq == 0 and self._backend.is_taken(session.header):
                raise SessionCollision(session.id, "a session with this id is stored already")
            retiring = self._retiring.get(session.id)
            earlier = retiring[1] if retiring is not None else None
            live.attached = asyncio.create_task(self._compare(live, earlier), name=f"attach {session.id}")
            live.attached.add_done_callback(retrieve)
        self._live[session.id] = live
        return live

    async def _compare(self, live: LiveLog, earlier: "asyncio.Task[None] | None") -> None:
        session_id = live.session.id
        if earlier is not None:
            await asyncio.shield(earlier)
        await self._chains.run(session_id, lambda: self._adopt(live))
        live.touch()

    async def _adopt(self, live: LiveLog) -> None:
        """Find out how much of a live session is stored already.

        Raises:
            SessionCollision: what is stored is not the beginning of this session.
        """
        session = live.session
        registered = self._cold.forget(session.id)
        if registered is not None and registered.cwd != session.header.cwd:
            raise SessionCollision(session.id, "it was registered for another working directory")
        if await self._worker.call(self._backend.find, session.id) is None:
            return
        if not session.length:
            raise SessionCollision(session.id, "a session with this id is stored already")
        stored = await self._worker.call(self._backend.open, session.id)
        if stored is None:
            return
        try:
            view = await self._worker.call(build_view, stored)
            if stored.header.cwd != session.header.cwd or not same_prefix(view, session):
                raise SessionCollision(session.id, f"{stored.place} holds another session with this id")
            await self._worker.call(self._backend.repair, stored, (), view.recovered)
        except BaseException:
            await self._worker.call(self._backend.release, session.id)
            raise
        live.cursor = view.stored_length

    def appended(self, session: Session) -> None:
        """A live session has grown. The hot path."""
        live = self._live.get(session.id)
        if live is None or live.session is not session:
            if self._is_leaving:
                return
            live = self.attach(session)
        live.writes.touch()

    async def flush(self, session: Session) -> None:
        """Wait until everything the live session holds is durable.

        Raises:
            PersistenceError: it is not.
        """
        if session.id in self._live or not self._is_leaving:
            await self.attach(session).flush()

    # -- the end -----------------------------------------------------------------------------------

    def retire(self, session: Session) -> None:
        """The session is no longer live: store the rest, then give the log up."""
        live = self._live.get(session.id)
        if live is None or live.session is not session:
            return
        del self._live[session.id]
        live.writes.close()
        task = asyncio.create_task(self._retire(live), name=f"retire {session.id}")
        task.add_done_callback(retrieve)
        self._retiring[session.id] = live, task

    async def _retire(self, live: LiveLog) -> None:
        session_id = live.session.id
        try:
            await live.flush()
        except Exception as error:
            _log.warning("the end of session %s was not stored: %s", session_id, error, exc_info=error)
            raise
        await self._chains.run(session_id, lambda: self._cold.let_go(session_id))
        self._retiring.pop(session_id, None)

    async def when_retired(self, session_id: str) -> None:
        """Wait until the end of a session that was live is stored. Raises what kept it from being so."""
        if (retiring := self._retiring.get(session_id)) is not None:
            await asyncio.shield(retiring[1])

    async def leave(self) -> None:
        """Follow no new sessions, and store what those hold that are followed. They stay so until `close`.

        What cannot be stored is told at the end of its session.
        """
        self._is_leaving = True
        for live in list(self._live.values()):
            with contextlib.suppress(Exception):
                await live.flush()

    async def close(self) -> list[Exception]:
        """Store the end of every session, also where that failed before. Answers what could not be stored."""
        errors: list[Exception] = []
        for live in [*self._live.values(), *(live for live, _ in self._retiring.values())]:
            live.writes.close()
            try:
                await live.flush()
            except Exception as error:
                errors.append(error)
        await asyncio.gather(*(task for _, task in self._retiring.values()), return_exceptions=True)
        self._live.clear()
        return errors
