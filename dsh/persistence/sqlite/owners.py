"""Who writes which session of a database: a lock of the system's for each, in `<database>-owners/`.

A database's own locks last for one transaction. These last as long as a session is open, and end with their
process. What repair removes from a session is kept in the same folder.
"""

import contextlib
import os
from hashlib import sha256
from pathlib import Path
from typing import Protocol

from dsh.persistence.error import SessionBusy
from dsh.persistence.files import Files
from dsh.persistence.jsonl.layout import session_name
from dsh.persistence.jsonl.writer import keep_aside
from dsh.persistence.lock import OwnerLock, owner_told
from dsh.persistence.sqlite.path import create_folder

SUFFIX = "-owners"
_LOCK = ".lock"
_NAME_LIMIT = 200
"""Longest name; what is added to it keeps below the 255 bytes of a file system."""


class Owner(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Give it back; twice is harmless."""


class _Locked:
    """A held lock file. It goes with the lock, so that many sessions do not leave as many files."""

    def __init__(self, lock: OwnerLock) -> None:
        self._lock: OwnerLock | None = lock

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.discard()


class Owners:
    """The locks of a database file."""

    def __init__(self, database: Path) -> None:
        self.folder = database.with_name(database.name + SUFFIX)

    def acquire(self, session_id: str, place: str) -> Owner:
        """Take the lock of a session; the database's own folder must exist.

        Raises:
            SessionBusy: somebody has it, in this process or another.
            UnsafePath, OSError: the folder of the locks is not what it should be.
        """
        create_folder(self.folder)
        return _Locked(OwnerLock.acquire(self.folder, _name(session_id) + _LOCK, place=place))

    def told(self, session_id: str) -> str | None:
        """Who has the lock, without taking it; None for nobody."""
        return owner_told(self.folder, _name(session_id) + _LOCK)

    def keep_aside(self, session_id: str, data: bytes, seq: int) -> Path:
        """Store what is about to be removed from `seq` on. Returns where."""
        return keep_aside(Files(), self.folder / _name(session_id), data, seq)

    def clear(self, session_id: str) -> None:
        """Remove what was kept of a session whose lock the caller holds."""
        for path in self.folder.glob(f"{_name(session_id)}.cut-*"):
            path.unlink(missing_ok=True)

    def sweep(self, before_ms: int) -> int:
        """Remove locks older than that which nobody holds; answers how many."""
        removed = 0
        for path in self.folder.glob(f"*{_LOCK}"):
            with contextlib.suppress(SessionBusy, OSError):
                if path.lstat().st_mtime_ns // 1_000_000 < before_ms:
                    _Locked(OwnerLock.acquire(self.folder, path.name)).release()
                    removed += 1
        return removed


def _name(session_id: str) -> str:
    """A file name for a session; of an id too long for one, a digest."""
    name = session_name(session_id)
    return name if len(name) <= _NAME_LIMIT else sha256(name.encode()).hexdigest()


class _Held:
    """A session of a database in memory that is open."""

    def __init__(self, held: set[str], session_id: str) -> None:
        self._held, self._session_id = held, session_id

    def release(self) -> None:
        self._held.discard(self._session_id)


class MemoryOwners:
    """The same for a database that nobody outside this process can see. State: who is open."""

    def __init__(self) -> None:
        self._held: set[str] = set()

    def acquire(self, session_id: str, place: str) -> Owner:
        """Take the lock of a session.

        Raises:
            SessionBusy: it is taken.
        """
        if session_id in self._held:
            raise SessionBusy(place, f"this process ({os.getpid()})")
        self._held.add(session_id)
        return _Held(self._held, session_id)

    def told(self, session_id: str) -> str | None:
        """Who has it."""
        return f"this process ({os.getpid()})" if session_id in self._held else None

    def keep_aside(self, session_id: str, data: bytes, seq: int) -> None:
        """Nothing outlives this process, so there is no place to keep anything."""

    def clear(self, session_id: str) -> None:
        """There is nothing."""

    def sweep(self, before_ms: int) -> int:
        """There is nothing."""
        return 0
