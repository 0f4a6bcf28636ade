"""A live session and its stored log: how far it is stored, and the writing of what is not."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
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
        """What kept the last write from being made; None once one went well."""

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
        await self._when_attached()
        await self.writes.flush()

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Make what goes wrong the session's trouble; the same again is the very same error."""
        try:
            yield
        except Exception as error:
            told = self._told(error)
            if self.trouble is None or str(self.trouble) != str(told):
                self.trouble = told
            if self.trouble is error:
                raise
            raise self.trouble from error

    def _told(self, error: Exception) -> PersistenceError:
        if isinstance(error, PersistenceError):
            return error
        where = str(self._backend.locate(self.session.header) or self._backend.name)
        if isinstance(error, OSError):
            return SessionNotDurable(self.session.id, where, error)
        return PersistenceError(
            f"session {self.session.id!r} could not be stored in {where}: {type(error).__name__}: {error}",
            code="SESSION_NOT_DURABLE",
            hint="what was stored before is intact",
        )

    def _is_dirty(self) -> bool:
        return self.session.length > self.cursor

    async def _when_attached(self) -> None:
        if self.attached is not None:
            with self._telling():
                await asyncio.shield(self.attached)
            self.attached = None

    async def _write(self) -> None:
        await self._when_attached()
        with self._telling():
            await self._chains.run(self.session.id, self._store)
        self.trouble = None

    async def _store(self) -> None:
        entries = self.session.entries(self.cursor)
        if entries:
            await self._worker.call(self._backend.append, self.session.header, entries)
            self.cursor = entry_stop(entries[-1])

    def _warn(self, error: Exception) -> None:
        waiting = self.session.length - self.cursor
        _log.warning("%s; %d events wait in memory; trying again", error, waiting)
