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
        self.trouble: PersistenceError | None = None
        """What writes have been failing with since one last succeeded."""

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
        except (OSError, PersistenceError) as error:
            told = self._lasting(error)
            if told is error:
                raise
            raise told from error
        self.trouble = None

    def _lasting(self, error: OSError | PersistenceError) -> PersistenceError:
        """The error to tell: the one before, as long as nothing else goes wrong."""
        if isinstance(error, OSError):
            path = self._backend.locate(self.session.header)
            told: PersistenceError = SessionNotDurable(
                self.session.id, str(path or self._backend.name), error
            )
            told.__cause__ = error
        else:
            told = error
        if self.trouble is None or str(self.trouble) != str(told):
            self.trouble = told
        return self.trouble

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
            self.trouble = None
            self.cursor = entry_stop(entries[-1])

    def _warn(self, error: Exception) -> None:
        if isinstance(error, OSError | PersistenceError):
            self._lasting(error)
        waiting = self.session.length - self.cursor
        _log.warning(
            "session %s: %d events could not be stored so far: %s; trying again",
            self.session.id,
            waiting,
            error.strerror if isinstance(error, OSError) else error,
        )
