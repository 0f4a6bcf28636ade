"""Row `session-persistence-jsonl`: stores every live session as an append-only file under `root`."""

import os
from pathlib import Path
from typing import Literal

import msgspec

from dsh.capabilities.bounds import Amount, TimerMs
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.persistence.coordinator import Coordinator
from dsh.persistence.follow import follow_sessions
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.service import PERSISTENCE
from dsh.session.store import SESSIONS

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
    await follow_sessions(ctx, coordinator, backend.name)


def usable_root(configured: str) -> Path:
    """The absolute root folder; it need not exist.

    Raises:
        CompositionError: it is empty, no folder, or cannot be read.
    """
    if not configured:
        raise CompositionError("root is empty", hint="set root to the folder that is to hold the sessions")
    root = Path(configured).absolute()
    if os.path.lexists(root):
        if not root.is_dir():
            raise CompositionError(
                f"root {root} is no folder", hint="move it away, or set root to another folder"
            )
        if not os.access(root, os.R_OK | os.X_OK):
            raise CompositionError(f"root {root} cannot be read", hint="change its mode or owner")
    return root
