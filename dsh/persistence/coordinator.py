"""The shared write path over a backend: order per id, ownership, repair before use, teardown.

State per id: a live session's log, a reservation for resume, or a retirement under way; what nobody has live
is in `cold.py`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from dsh.kernel.task import retrieve
from dsh.persistence.backend import Backend, Listing, Packed, RawLog
from dsh.persistence.chain import Chains, Worker
from dsh.persistence.cold import ColdLogs
from dsh.persistence.error import PersistenceError, SessionCollision, SessionLive, SessionNotFound
from dsh.persistence.fork import new_session_id, refuse_taken, store_fork
from dsh.persistence.live import LiveLog
from dsh.persistence.view import LogView, build_view, same_prefix
from dsh.persistence.write_behind import Scheduler
from dsh.session.chunk_run import Entry
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader, header_from_json
from dsh.session.log import Session

_log = logging.getLogger("dsh.session-persistence")

T = TypeVar("T")

REPAIR_ROUNDS = 3
"""How often a cold log that changes under its repair is read again before that becomes an error."""


class Reservation:
    """A repaired stored session that is about to go live. Holds its owner lock."""

    def __init__(self, owner: "Coordinator", session: Session, cursor: int) -> None:
        self._owner = owner
        self.session = session
        self.cursor = cursor
        self.over = asyncio.Event()
        """Set once the session was published or given back."""

    async def release(self) -> None:
        """Give the session back. Does nothing once it was published."""
        if not self.over.is_set():
            await self._owner.give_back(self)


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
        self._backend = backend
        self._delay_s = delay_s
        self._schedule = schedule or asyncio.get_running_loop().call_later
        self._chains = Chains()
        self._worker = Worker()
        self._cold = ColdLogs(backend, self._worker, cached_views=cached_views)
        self._live: dict[str, LiveLog] = {}
        self._reserved: dict[str, Reservation] = {}
        self._retiring: dict[str, tuple[LiveLog, asyncio.Task[None]]] = {}
        self._is_leaving = False
        self._is_closed = False

    # -- live sessions -----------------------------------------------------------------------------

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
        reservation = self._reserved.get(session.id)
        if reservation is not None and reservation.session is not session:
            raise SessionCollision(session.id, "the stored session is being resumed by somebody else")
        live = LiveLog(
            session,
            self._backend,
            chains=self._chains,
            worker=self._worker,
            delay_s=self._delay_s,
            schedule=self._schedule,
        )
        if reservation is not None:
            if not reservation.cursor == session.first_live_seq <= session.length:
                raise SessionCollision(session.id, "the resumed session is not as long as what is stored")
            live.cursor = reservation.cursor
            del self._reserved[session.id]
            reservation.over.set()
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
        live = self._live.get(session.id)
        if live is not None or not self._is_leaving:
            await self.attach(session).flush()

    async def leave(self) -> None:
        """Follow no new sessions, and store what those hold that are followed. They stay so until `close`.

        What cannot be stored is told at the end of its session.
        """
        self._is_leaving = True
        for live in list(self._live.values()):
            with contextlib.suppress(Exception):
                await live.flush()

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
        await self._chains.run(session_id, lambda: self._let_go(session_id))
        self._retiring.pop(session_id, None)

    async def _let_go(self, session_id: str) -> None:
        self._cold.forget(session_id)
        await self._worker.call(self._backend.release, session_id)

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

    async def when_retired(self, session_id: str) -> None:
        if (retiring := self._retiring.get(session_id)) is not None:
            await asyncio.shield(retiring[1])

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
        while True:
            while (earlier := self._reserved.get(session_id)) is not None:
                await earlier.over.wait()
            preparing = self._chains.start(session_id, lambda: self._prepare(session_id))
            try:
                made = await asyncio.shield(preparing)
            except asyncio.CancelledError:
                preparing.add_done_callback(self._give_back_late)
                raise
            if made is not None:
                return made

    async def _prepare(self, session_id: str) -> Reservation | None:
        """The reservation; None where somebody else got one first."""
        if session_id in self._reserved:
            return None
        if session_id in self._live:
            raise SessionCollision(session_id, "it is live")
        view = await self._cold.repair(session_id)
        reservation = Reservation(self, view.to_session(), view.length)
        self._reserved[session_id] = reservation
        return reservation

    def _give_back_late(self, preparing: "asyncio.Task[Reservation | None]") -> None:
        """Nobody waits any more for what was prepared."""
        if not preparing.cancelled() and preparing.exception() is None:
            made = preparing.result()
            if made is not None:
                self._chains.start(made.session.id, lambda: self._drop(made))

    async def give_back(self, reservation: Reservation) -> None:
        """End a reservation that was not used."""
        await self._chains.run(reservation.session.id, lambda: self._drop(reservation))

    async def _drop(self, reservation: Reservation) -> None:
        session_id = reservation.session.id
        if self._reserved.get(session_id) is reservation:
            del self._reserved[session_id]
            await self._let_go(session_id)
        reservation.over.set()

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
        if type(seq) is not int or seq < 0:
            raise TypeError(f"a seq is an integer from 0, found {seq!r}")
        await self.when_retired(session_id)
        return await self._chains.run(session_id, lambda: self._cold.read_from(session_id, seq))

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

    def trouble(self, session_id: str) -> PersistenceError | None:
        live = self._live.get(session_id)
        return None if live is None else live.trouble

    # -- the end -----------------------------------------------------------------------------------

    async def close(self) -> None:
        """Store what every live session holds, finish what was started, close the backend. Once.

        Raises:
            Exception: what went wrong, or a group of it.
        """
        if self._is_closed:
            return
        self._is_closed = True
        errors: list[Exception] = []
        for live in [*self._live.values(), *(live for live, _ in self._retiring.values())]:
            live.writes.close()
            try:
                await live.flush()
            except Exception as error:
                errors.append(error)
        await asyncio.gather(*(task for _, task in self._retiring.values()), return_exceptions=True)
        await self._chains.join()
        try:
            await self._worker.call(self._backend.close)
        except Exception as error:
            errors.append(error)
        self._worker.stop()
        self._live.clear()
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup(f"closing {self._backend.name}", errors)
