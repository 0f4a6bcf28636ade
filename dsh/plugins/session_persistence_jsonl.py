"""Row `session-persistence-jsonl`: stores every live session as an append-only file under `root`.

The row decides which sessions are followed. Those that are, are followed to their end, which may come after
the row's own: an agent that is mounted before it and ends with the tree still has its last events stored.
"""

import os
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from dsh.capabilities.bounds import Amount, TimerMs
from dsh.errors import CompositionError
from dsh.kernel import Context, Effect
from dsh.persistence.coordinator import Coordinator
from dsh.persistence.jsonl import JsonlBackend
from dsh.persistence.service import PERSISTENCE
from dsh.session.log import Session
from dsh.session.store import (
    SESSION_CREATED,
    SESSION_DISPOSED,
    SESSION_EVENT,
    SESSION_FLUSH,
    SESSIONS,
    Appended,
)

inject = [SESSIONS]
provide = [PERSISTENCE]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    root: str
    """Folder of all sessions; created with the first one."""
    pack_chunks: bool = True
    """Store runs of stream deltas as one row. Reading takes both forms."""
    compression: Literal["zstd", "none"] = "zstd"
    """For new logs; a stored one is continued as it is."""
    prepared_session_cache_size: Amount = 5
    """How many stored sessions are kept decoded for the next reader."""
    write_batch_max_delay_ms: TimerMs = 200
    """Time from the first unwritten event to its write, where no barrier comes before."""


async def apply(ctx: Context, config: Config) -> None:
    root = usable_root(config.root)
    backend = JsonlBackend(
        root,
        encoding="zstd" if config.compression == "zstd" else "plain",
        pack_chunks=config.pack_chunks,
    )
    coordinator = Coordinator(
        backend,
        delay_s=config.write_batch_max_delay_ms / 1000,
        cached_views=config.prepared_session_cache_size,
    )

    def created(session: Session) -> None:
        coordinator.attach(session, is_new=True)

    def appended(event: Appended) -> None:
        coordinator.appended(event.session)

    def serve(store: Context) -> Iterator[Effect | Callable[[], Awaitable[None]]]:
        yield coordinator.close
        yield store.on(SESSION_EVENT, appended)
        yield store.on(SESSION_FLUSH, coordinator.flush)
        yield store.on(SESSION_DISPOSED, coordinator.retire)

    ctx.provide(PERSISTENCE, coordinator)
    sessions = ctx.use(SESSIONS)
    await sessions.keep("session persistence", serve)
    ctx.effect(lambda: coordinator.leave, f"follow sessions for {backend.name}")
    ctx.on(SESSION_CREATED, created)
    for session in sessions.list():
        coordinator.attach(session)


def usable_root(configured: str) -> Path:
    """The absolute root folder; it need not exist.

    Raises:
        CompositionError: it is empty, no folder, or cannot be read.
    """
    if not configured:
        raise CompositionError("root is empty", hint="set root to the folder that is to hold the sessions")
    root = Path(configured).absolute()
    if root.exists():
        if not root.is_dir():
            raise CompositionError(
                f"root {root} is no folder", hint="move it away, or set root to another folder"
            )
        if not os.access(root, os.R_OK | os.X_OK):
            raise CompositionError(f"root {root} cannot be read", hint="change its mode or owner")
    return root
