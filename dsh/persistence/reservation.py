"""Stored sessions that are about to go live: repaired, with their owner lock held, given to one at a time."""

import asyncio
from collections.abc import Callable

from dsh.persistence.chain import Chains
from dsh.persistence.cold import ColdLogs
from dsh.persistence.error import SessionCollision
from dsh.session.log import Session


class Reservation:
    """A repaired stored session that is about to go live. Holds its owner lock."""

    def __init__(self, owner: "Reservations", session: Session, cursor: int) -> None:
        self._owner = owner
        self.session = session
        self.cursor = cursor
        """How many of its events are stored."""
        self.over = asyncio.Event()
        """Set once the session was published or given back."""

    async def release(self) -> None:
        """Give the session back. Does nothing once it was published."""
        if not self.over.is_set():
            await self._owner.give_back(self)


class Reservations:
    """State: by session id, the reservation that is neither used nor given back."""

    def __init__(self, chains: Chains, cold: ColdLogs, *, is_live: Callable[[str], bool]) -> None:
        self._chains = chains
        self._cold = cold
        self._is_live = is_live
        self._held: dict[str, Reservation] = {}

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._held

    async def make(self, session_id: str) -> Reservation:
        """Repair and reserve a stored session, after whoever has it reserved now.

        Raises:
            SessionCollision: it is live.
            Exception: as `ColdLogs.repair`.
        """
        while True:
            while (earlier := self._held.get(session_id)) is not None:
                await earlier.over.wait()
            making = self._chains.start(session_id, lambda: self._make(session_id))
            try:
                made = await asyncio.shield(making)
            except asyncio.CancelledError:
                making.add_done_callback(self._give_back_late)
                raise
            if made is not None:
                return made

    async def _make(self, session_id: str) -> Reservation | None:
        """The reservation; None where somebody else got one first."""
        if session_id in self._held:
            return None
        if self._is_live(session_id):
            raise SessionCollision(session_id, "it is live")
        view = await self._cold.repair(session_id)
        reservation = Reservation(self, view.to_session(), view.length)
        self._held[session_id] = reservation
        return reservation

    def use(self, session: Session) -> Reservation | None:
        """End the reservation that a session goes live with, if there is one of its id.

        Raises:
            SessionCollision: it is another session's, or the session is not as long as what is stored.
        """
        reservation = self._held.get(session.id)
        if reservation is None:
            return None
        if reservation.session is not session:
            raise SessionCollision(session.id, "the stored session is being resumed by somebody else")
        if not reservation.cursor == session.first_live_seq <= session.length:
            raise SessionCollision(session.id, "the resumed session is not as long as what is stored")
        del self._held[session.id]
        reservation.over.set()
        return reservation

    async def give_back(self, reservation: Reservation) -> None:
        """End a reservation that was not used."""
        await self._chains.run(reservation.session.id, lambda: self._drop(reservation))

    def _give_back_late(self, making: "asyncio.Task[Reservation | None]") -> None:
        """Nobody waits any more for what was reserved."""
        if not making.cancelled() and making.exception() is None and (made := making.result()) is not None:
            self._chains.start(made.session.id, lambda: self._drop(made))

    async def _drop(self, reservation: Reservation) -> None:
        session_id = reservation.session.id
        if self._held.get(session_id) is reservation:
            del self._held[session_id]
            await self._cold.let_go(session_id)
        reservation.over.set()
