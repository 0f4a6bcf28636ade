"""The shared write path over a backend: order per id, ownership, repair before use, teardown.

Here is the service, put together: `following.py` has the live sessions, `reservation.py` those that are about
to be, `cold.py` all that are only stored.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dsh.persistence.backend import Backend, Listing, Packed, RawLog
from dsh.persistence.chain import Chains, Worker
from dsh.persistence.cold import ColdLogs
from dsh.persistence.error import PersistenceError, SessionCollision, SessionLive, SessionNotFound
from dsh.persistence.following import Following
from dsh.persistence.fork import new_session_id, refuse_taken, store_fork
from dsh.persistence.live import LiveLog
from dsh.persistence.reservation import Reservation, Reservations
from dsh.persistence.view import LogView
from dsh.persistence.write_behind import Scheduler
from dsh.session.chunk_run import Entry, expand
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader, header_from_json

T = TypeVar("T")

REPAIR_ROUNDS = 3
"""How often a cold log that changes under its repair is read again before that becomes an error."""


class Coordinator:
    """Implements `dsh.persistence.service.SessionPersistence` over one backend."""

    def __init__(
        self,
        backend: Backend[Any],
        *,
        delay_s: float = 0.2,
        cached_views: int = 5,
        schedule: Scheduler | None = None,
    ) -> None:
        schedule = schedule or asyncio.get_running_loop().call_later
        self._backend = backend
        self._chains = chains = Chains()
        self._worker = worker = Worker()
        self._cold = ColdLogs(backend, worker, cached_views=cached_views)
        self._reserved = Reservations(chains, self._cold, is_live=lambda session_id: session_id in self._live)
        self._live = Following(
            backend,
            chains=chains,
            worker=worker,
            cold=self._cold,
            reservations=self._reserved,
            open_log=lambda session: LiveLog(
                session, backend, chains=chains, worker=worker, delay_s=delay_s, schedule=schedule
            ),
        )
        # What a live session goes through is told to `Following` directly.
        self.attach = self._live.attach
        self.appended = self._live.appended
        self.flush = self._live.flush
        self.retire = self._live.retire
        self.leave = self._live.leave
        self.when_retired = self._live.when_retired
        self.trouble = self._live.trouble
        self._is_closed = False

    # -- the service -------------------------------------------------------------------------------

    def locate(self, header: SessionHeader) -> Path | None:
        return self._backend.locate(header)

    async def create(self, header: SessionHeader) -> None:
        header_from_json(header.to_json())
        await self.when_retired(header.id)
        await self._chains.run(header.id, lambda: self._create(header))

    async def _create(self, header: SessionHeader) -> None:
        self._refuse_owned(header.id)
        await self._cold.create(header)

    async def append(self, session_id: str, events: Sequence[Entry]) -> None:
        if events:
            await self.when_retired(session_id)
            await self._chains.run(session_id, lambda: self._append(session_id, tuple(events)))

    async def _append(self, session_id: str, entries: tuple[Entry, ...]) -> None:
        self._refuse_owned(session_id)
        await self._cold.append(session_id, entries)

    def _refuse_owned(self, session_id: str) -> None:
        if session_id in self._live or session_id in self._reserved:
            raise SessionCollision(session_id, "it is live, and only its own log is stored")

    async def prepare(self, session_id: str) -> Reservation:
        await self.when_retired(session_id)
        return await self._reserved.make(session_id)

    async def load(self, session_id: str) -> LogView:
        await self.when_retired(session_id)
        if (live := self._live.get(session_id)) is not None:
            view = LogView(live.session.copy())
            await live.flush()
            if not view.length:
                raise SessionNotFound(session_id)
            if view.open_turn is not None:
                raise PersistenceError(f"session {session_id!r}: turn {view.open_turn} is open")
            return view
        return await self._chains.run(session_id, lambda: self._load(session_id))

    async def _load(self, session_id: str) -> LogView:
        for _ in range(REPAIR_ROUNDS):
            view = await self._cold.inspect(session_id)
            if not view.needs_repair:
                return view
            self._refuse_owned(session_id)
            await self._cold.repair(session_id)
            await self._worker.call(self._backend.release, session_id)
        raise PersistenceError(f"session {session_id!r}: the log keeps changing")

    async def inspect(self, session_id: str) -> LogView:
        await self.when_retired(session_id)
        if (live := self._live.get(session_id)) is not None:
            return LogView(live.session.copy())
        return await self._chains.run(session_id, lambda: self._cold.inspect(session_id))

    async def read_from(self, session_id: str, seq: int) -> tuple[SessionEvent, ...]:
        entries = await self.entries_from(session_id, seq)
        return await self._worker.call(lambda: tuple(expand(entries)))

    async def entries_from(self, session_id: str, seq: int) -> tuple[Entry, ...]:
        if type(seq) is not int or seq < 0:
            raise TypeError(f"a seq is an integer from 0, found {seq!r}")
        await self.when_retired(session_id)
        return await self._chains.run(session_id, lambda: self._cold.entries_from(session_id, seq))

    async def read_raw(self, session_id: str) -> RawLog:
        raw = await self._chains.run(
            session_id, lambda: self._worker.call(self._backend.read_raw, session_id)
        )
        if raw is None:
            raise SessionNotFound(session_id)
        return raw

    async def list(self) -> Listing:
        return await self._worker.call(self._backend.list)

    async def fork(
        self,
        session_id: str,
        *,
        boundary: int | None = None,
        turn: int | None = None,
        child_id: str | None = None,
    ) -> SessionHeader:
        child = new_session_id() if child_id is None else child_id
        await self.when_retired(child)
        return await self._chains.run(child, lambda: self._fork(session_id, boundary, turn, child))

    async def _fork(
        self, session_id: str, boundary: int | None, turn: int | None, child_id: str
    ) -> SessionHeader:
        self._refuse_owned(child_id)
        if child_id == session_id or self._cold.knows(child_id):
            raise SessionCollision(child_id, "a session with this id is stored already")
        await self._worker.call(refuse_taken, self._backend, child_id)
        view = await self.inspect(session_id)
        seed = view.fork(boundary=boundary, turn=turn)
        return await self._worker.call(store_fork, self._backend, seed, child_id)

    async def delete(self, session_id: str) -> None:
        await self.when_retired(session_id)
        await self._chains.run(session_id, lambda: self._alone(session_id, self._cold.delete))

    async def pack(self, session_id: str) -> Packed:
        await self.when_retired(session_id)
        return await self._chains.run(session_id, lambda: self._alone(session_id, self._cold.pack))

    async def _alone(self, session_id: str, operation: Callable[[str], Awaitable[T]]) -> T:
        """Do something to a stored session that is not live."""
        if session_id in self._live or session_id in self._reserved:
            raise SessionLive(session_id)
        return await operation(session_id)

    # -- the end -----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Store what every live session holds, finish what was started, close the backend. Once.

        Raises:
            Exception: what went wrong, or a group of it.
        """
        if self._is_closed:
            return
        self._is_closed = True
        errors = await self._live.close()
        await self._chains.join()
        try:
            await self._worker.call(self._backend.close)
        except Exception as error:
            errors.append(error)
        self._worker.stop()
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup(f"closing {self._backend.name}", errors)
