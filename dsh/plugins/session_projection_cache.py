"""Row `session-projection-cache`: keeps the projections of a session beside its log, in `projections.json`.

Whoever lists sessions has their titles from it, and a session that is opened again is not folded from its
first event. What is stored never leads the log: a write takes the states first, then waits until the log is
durable that far, then stores. It can be deleted at any time (`spec/persistence.md` §9).
"""

import asyncio
from pathlib import Path
from weakref import WeakKeyDictionary

import msgspec

from dsh.capabilities.bounds import Amount, TimerMs
from dsh.capabilities.projections import PROJECTION_CACHE, PROJECTIONS
from dsh.kernel import Context
from dsh.kernel.foreign import told
from dsh.persistence.projections import read_rows, sidecar_path, write_rows
from dsh.persistence.service import PERSISTENCE
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.projection.error import UnusableRows
from dsh.session.projection.fold import Restored, Row, Rows, Snapshot
from dsh.session.store import (
    SESSION_CREATED,
    SESSION_DISPOSED,
    SESSION_EVENT,
    SESSION_FLUSH,
    SESSIONS,
    Appended,
)
from dsh.session.value import MAX_SAFE_INT

inject = [SESSIONS, PROJECTIONS]
provide = [PROJECTION_CACHE]

TURN_END = "turn/end"
TITLED = "session/title"


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row; both are required. The ends of turns and sessions are always written."""

    write_every_events: Amount
    """A write is due after so many new events."""
    write_interval_ms: TimerMs
    """A write is due so long after the first event that is not in the cache."""


class _Kept:
    """One live session. State: what of it is stored, and what is about to be."""

    def __init__(self, session: Session, path: Path, rows: dict[str, Row]) -> None:
        self.header = session.header
        self.path = path
        self.rows = rows
        """As stored. Those of units that are gone stay: they are true of the event they name."""
        self.length = session.length if rows else 0
        """How many events the log had when it was stored last."""
        self.tried = self.length
        """The same for the last attempt: one that failed is not repeated at every event."""
        self.timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None
        self.is_due = False
        self.is_titled = False
        """It has a title that no write is due for yet."""
        self.is_told = False
        """The person has heard that this cache cannot be written."""


class ProjectionSidecars:
    """Implements `dsh.capabilities.projections.ProjectionCache`."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._ctx = ctx
        self._config = config
        self._sessions = ctx.use(SESSIONS)
        self._persistence = ctx.use(PERSISTENCE)
        self._projections = ctx.use(PROJECTIONS)
        self._kept: WeakKeyDictionary[Session, _Kept | None] = WeakKeyDictionary()
        """None for a session without a file of its own."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    # -- live sessions -----------------------------------------------------------------------------

    def created(self, session: Session) -> None:
        """A session is live. One that is continued begins with what is stored of it."""
        self._keep(session)

    def _keep(self, session: Session) -> _Kept | None:
        path = self._path(session.header)
        rows = read_rows(path, session.header) if path is not None and session.first_live_seq else {}
        if rows:
            self._projections.adopt(session, rows)
        kept = None if path is None else _Kept(session, path, rows)
        self._kept[session] = kept
        return kept

    def appended(self, appended: Appended) -> None:
        """A live log has grown."""
        session = appended.session
        kept = self._kept[session] if session in self._kept else self._keep(session)
        if kept is None or self._is_closed:
            return
        is_full = session.length - kept.tried >= self._config.write_every_events
        if is_full or appended.event.type == TURN_END:
            self._write_soon(session, kept)
            return
        if appended.event.type == TITLED:
            kept.is_titled = True
        if kept.timer is None:
            delay_s = self._config.write_interval_ms / 1000
            loop = asyncio.get_running_loop()
            kept.timer = loop.call_later(delay_s, self._write_soon, session, kept)

    def flushed(self, session: Session) -> None:
        """A live log is being made durable: a new title is stored with it, and costs no barrier of its own.

        Whoever lists sessions sees it while the session runs, and after it was killed.
        """
        kept = self._kept.get(session)
        if kept is not None and kept.is_titled and not self._is_closed:
            self._write_soon(session, kept)

    def disposed(self, session: Session) -> None:
        """The session is not live any more: its last events are stored too."""
        kept = self._kept.pop(session, None)
        if kept is not None and not self._is_closed:
            self._write_soon(session, kept)

    def _write_soon(self, session: Session, kept: _Kept) -> None:
        if kept.timer is not None:
            kept.timer.cancel()
            kept.timer = None
        kept.is_due, kept.is_titled = True, False
        if kept.task is None:
            kept.task = asyncio.create_task(self._write(session, kept), name=f"projections {session.id}")
            self._tasks.add(kept.task)
            kept.task.add_done_callback(self._tasks.discard)

    async def _write(self, session: Session, kept: _Kept) -> None:
        try:
            while kept.is_due:  # again, if it becomes so meanwhile, also where this write fails
                kept.is_due = False
                if session.length != kept.length:
                    await self._store(session, kept)
        finally:
            kept.task = None

    async def _store(self, session: Session, kept: _Kept) -> None:
        length = kept.tried = session.length
        rows = {**kept.rows, **self._projections.checkpoint(session)}
        try:
            await self._until_durable(session)
        except Exception as error:  # storage has told the person itself
            self._ctx.logger.debug("session %s is not durable: %s", session.id, told(error))
            return
        try:
            if await asyncio.to_thread(write_rows, kept.path, kept.header, rows):
                kept.rows, kept.length = rows, length
        except Exception as error:  # a cache is not worth more than a word
            log = self._ctx.logger.debug if kept.is_told else self._ctx.logger.warning
            log("projections of session %s are not kept: %s", session.id, told(error))
            kept.is_told = True

    async def _until_durable(self, session: Session) -> None:
        if self._sessions.get(session.id) is session:
            await self._sessions.flush(session)
        else:
            await self._persistence.when_retired(session.id)

    async def close(self) -> None:
        """Store what is known of the live sessions, and finish what was begun."""
        for session, kept in list(self._kept.items()):
            if kept is not None and session.length != kept.length:
                self._write_soon(session, kept)
        self._is_closed = True
        while self._tasks:
            await asyncio.wait(tuple(self._tasks))

    # -- stored sessions ---------------------------------------------------------------------------

    def cached_snapshot(self, header: SessionHeader) -> Snapshot | None:
        path = self._path(header)
        rows = {} if path is None else read_rows(path, header)
        return self._projections.view_checkpoint(rows) if rows else None

    async def cold_snapshot(self, header: SessionHeader) -> Snapshot:
        live = self._sessions.get(header.id)
        if live is not None:
            return self._projections.snapshot(live)
        path = self._path(header)
        rows = {} if path is None else await asyncio.to_thread(read_rows, path, header)
        floor = self._projections.restore_floor(rows)
        if floor is None:
            await self._persistence.entries_from(header.id, MAX_SAFE_INT)
            return Snapshot(-1, {})
        restored = await self._restored(header.id, rows, floor)
        if path is not None and restored.rows != {key: rows.get(key) for key in restored.rows}:
            try:
                await asyncio.to_thread(write_rows, path, header, {**rows, **restored.rows})
            except OSError as error:
                self._ctx.logger.warning("projections of session %s are not kept: %s", header.id, error)
        return restored.snapshot

    async def _restored(self, session_id: str, rows: Rows, floor: int) -> Restored:
        """Read and folded beside the event loop: a log may be long."""
        entries = await self._persistence.entries_from(session_id, floor)
        try:
            return await asyncio.to_thread(self._projections.restore, rows, entries, floor)
        except UnusableRows:
            entries = await self._persistence.entries_from(session_id, 0)
            return await asyncio.to_thread(self._projections.restore, {}, entries, 0)

    def _path(self, header: SessionHeader) -> Path | None:
        log = self._persistence.locate(header)
        return None if log is None else sidecar_path(log)


def apply(ctx: Context, config: Config) -> None:
    """Where nothing stores sessions there is nothing to keep beside them, and no service."""
    ctx.inject([SESSIONS, PROJECTIONS, PERSISTENCE], lambda inner: _start(inner, config))


def _start(ctx: Context, config: Config) -> None:
    cache = ProjectionSidecars(ctx, config)
    ctx.provide(PROJECTION_CACHE, cache)
    ctx.effect(lambda: cache.close, "projections of live sessions")
    ctx.on(SESSION_CREATED, cache.created)
    ctx.on(SESSION_EVENT, cache.appended)
    ctx.on(SESSION_FLUSH, cache.flushed)
    ctx.on(SESSION_DISPOSED, cache.disposed)
    for session in ctx.use(SESSIONS).list():
        cache.created(session)
