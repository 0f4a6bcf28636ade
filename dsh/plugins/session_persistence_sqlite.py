"""Row `session-persistence-sqlite`: stores every live session in one SQLite database.

In place of row `session-persistence-jsonl`; no shipped bundle mounts it.
"""

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from dsh.capabilities.bounds import Amount, TimerMs
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.persistence.coordinator import Coordinator
from dsh.persistence.error import PersistenceError
from dsh.persistence.follow import follow_sessions
from dsh.persistence.service import PERSISTENCE
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.sqlite.error import DatabaseBusy
from dsh.persistence.sqlite.path import MEMORY, check_file
from dsh.session.store import SESSIONS

inject = [SESSIONS]
provide = [PERSISTENCE]

BusyMs = Annotated[int, msgspec.Meta(ge=0, le=2147483647)]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    path: str
    """The database; created with the first session, mode 0600. `:memory:` keeps nothing."""
    journal_mode: Literal["wal", "delete", "truncate", "persist"] = "wal"
    """How SQLite makes a write whole. Only `wal` lets others read during one."""
    busy_timeout_ms: BusyMs = 5000
    """How long a write waits for another program's before it fails."""
    pack_chunks: bool = True
    """Store runs of stream deltas as one row. Reading takes both forms."""
    prepared_session_cache_size: Amount = 5
    """How many stored sessions are kept decoded for the next reader."""
    write_batch_max_delay_ms: TimerMs = 200
    """Time from the first unwritten event to its write, where no barrier comes before."""


async def apply(ctx: Context, config: Config) -> None:
    path = usable_path(config.path)
    await asyncio.to_thread(_check, path)
    backend = SqliteBackend(
        path,
        journal_mode=config.journal_mode,
        busy_timeout_ms=config.busy_timeout_ms,
        pack_chunks=config.pack_chunks,
    )
    coordinator = Coordinator(
        backend,
        delay_s=config.write_batch_max_delay_ms / 1000,
        cached_views=config.prepared_session_cache_size,
    )
    await follow_sessions(ctx, coordinator, backend.name)


def usable_path(configured: str) -> str:
    """The absolute path of the database, or `:memory:`. The file need not exist.

    Raises:
        CompositionError: it is empty, no regular file, open to others, or could not be made.
    """
    if not configured:
        raise CompositionError("path is empty", hint="set path to the file that is to hold the sessions")
    if configured == MEMORY:
        return configured
    path = Path(configured).absolute()
    try:
        if check_file(path) is None:
            _check_can_be_made(path)
    except (PersistenceError, OSError) as error:
        raise _unusable(error) from None
    return str(path)


def _check(path: str) -> None:
    """Look whether the database is one of sessions, without waiting for anybody: the first write will."""
    backend = SqliteBackend(path, busy_timeout_ms=0)
    try:
        with contextlib.suppress(DatabaseBusy):
            backend.check()
    except (PersistenceError, OSError) as error:
        raise _unusable(error) from None
    finally:
        backend.close()


def _unusable(error: PersistenceError | OSError) -> CompositionError:
    if isinstance(error, PersistenceError):
        return CompositionError(f"path {error.message}", hint=error.hint)
    return CompositionError(
        f"path {error.filename} cannot be used: {error.strerror}", hint="set path to a file of yours"
    )


def _check_can_be_made(path: Path) -> None:
    above = next(folder for folder in path.parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise CompositionError(f"path {path} cannot be made in {above}", hint="set path to a file of yours")
