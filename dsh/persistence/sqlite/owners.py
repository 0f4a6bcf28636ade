"""Who writes which session of a database: a lock of the system's for each, in `<database>-owners/`.

A database's own locks last for one transaction. These last as long as a session is open, and end with their
process. What repair removes from a session is kept in the same folder.
"""

import contextlib
import os
from pathlib import Path
from typing import Protocol

from dsh.persistence.error import SessionBusy
from dsh.persistence.files import Files
from dsh.persistence.jsonl.layout import session_name
from dsh.persistence.jsonl.writer import keep_aside
from dsh.persistence.lock import OwnerLock
from dsh.persistence.sqlite.path import create_folder

SUFFIX = "-owners"
_LOCK = ".lock"


class Owner(Protocol):
    """A held lock."""

    def release(self) -> None:
        """Give it back; twice is harmless."""


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
        return OwnerLock.acquire(self.folder, session_name(session_id) + _LOCK, place=place)

    def keep_aside(self, session_id: str, data: bytes, seq: int) -> Path:
        """Store what is about to be removed from `seq` on. Returns where."""
        return keep_aside(Files(), self.folder / session_name(session_id), data, seq)

    def clear(self, session_id: str) -> None:
        """Remove what lies here of a session, its lock, which the caller holds, last."""
        name = session_name(session_id)
        with contextlib.suppress(FileNotFoundError):
            for path in [*self.folder.glob(f"{name}.cut-*"), self.folder / (name + _LOCK)]:
                path.unlink(missing_ok=True)


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

    def keep_aside(self, session_id: str, data: bytes, seq: int) -> None:
        """Nothing outlives this process, so there is no place to keep anything."""

    def clear(self, session_id: str) -> None:
        """There is nothing."""
