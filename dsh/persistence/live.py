"""A live session and its stored log: how far it is stored, and the writing of what is not."""

import asyncio
import logging
from typing import Any

from dsh.persistence.backend import Backend
from dsh.persistence.chain import Chains, Worker
from dsh.persistence.error import PersistenceError, SessionNotDurable
from dsh.persistence.write_behind import Scheduler, WriteBehind
from dsh.session.chunk_run import entry_stop
from dsh.session.log import Session

_log = logging.getLogger("dsh.session-persistence")


class LiveLog:
    """State: `cursor`, the seq of the first event that is not durable yet. The session is the queue."""

    def __init__(
        self,
        session: Session,
        backend: Backend[Any],
        *,
        chains: Chains,
        worker: Worker,
        delay_s: float,
        schedule: Scheduler,
    ) -> None:
        self.session = session
        self.cursor = 0
        self.attached: asyncio.Task[None] | None = None
        """Settles when storage has been compared with the session; None once it went well."""
        self._backend = backend
        self._chains = chains
        self._worker = worker
        self.writes = WriteBehind(
            self._write, self._is_dirty, delay_s, schedule=schedule, on_trouble=self._warn
        )
        self._trouble: PersistenceError | None = None
        """What flushes have been raising since one last succeeded."""

    @property
    def is_unused(self) -> bool:
        """Nothing of the session is stored, or waiting to be."""
        return self.cursor == 0 and self.writes.is_idle

    def touch(self) -> None:
        """The session has grown."""
        if self._is_dirty():
            self.writes.touch()

    async def flush(self) -> None:
        """Wait until everything the session holds is durable.

        Raises:
            PersistenceError: it is not; the events are kept, a later flush tries again. As long as nothing
                else goes wrong it is the very same error, so that it can be told once.
        """
        try:
            await self._when_attached()
            await self.writes.flush()
        except OSError as error:
            path = self._backend.locate(self.session.header)
            told = SessionNotDurable(self.session.id, str(path or self._backend.name), error)
            raise self._lasting(told) from error
        except PersistenceError as error:
            raise self._lasting(error) from None
        self._trouble = None

    def _lasting(self, error: PersistenceError) -> PersistenceError:
        if self._trouble is None or str(self._trouble) != str(error):
            self._trouble = error
        return self._trouble

    def _is_dirty(self) -> bool:
        return self.session.length > self.cursor

    async def _when_attached(self) -> None:
        if self.attached is not None:
            await asyncio.shield(self.attached)
            self.attached = None

    async def _write(self) -> None:
        await self._when_attached()
        await self._chains.run(self.session.id, self._store)

    async def _store(self) -> None:
        entries = self.session.entries(self.cursor)
        if entries:
            await self._worker.call(self._backend.append, self.session.header, entries)
            self.cursor = entry_stop(entries[-1])

    def _warn(self, error: Exception) -> None:
        waiting = self.session.length - self.cursor
        _log.warning(
            "session %s: %d events could not be stored so far: %s; trying again",
            self.session.id,
            waiting,
            error.strerror if isinstance(error, OSError) else error,
        )
