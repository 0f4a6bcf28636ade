"""One session database: how it is opened, its transactions, and what is checked before each of them.

Whoever only reads changes nothing: a missing file stays missing, and the journal mode of the file stays.
"""

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from dsh.persistence.error import PersistenceError, SessionFileChanged, WrongDatabase
from dsh.persistence.sqlite import schema
from dsh.persistence.sqlite.error import DatabaseBusy, is_busy, translated
from dsh.persistence.sqlite.path import MEMORY, check_file, create_file
from dsh.persistence.sqlite.record import utf8

JournalMode: TypeAlias = Literal["wal", "delete", "truncate", "persist"]

_SWITCH_RETRY_S = 0.01
"""Between two attempts to set the journal mode while somebody else is in the way."""
_FileId: TypeAlias = tuple[int, int]
"""Device and inode."""


class Database:
    """State: the connection, which file it is on, and the schema that was checked on it."""

    def __init__(self, path: str, journal_mode: JournalMode, busy_timeout_ms: int) -> None:
        """`path` is absolute, or `:memory:`. Nothing is opened yet."""
        self.path = path
        self.is_memory = path == MEMORY
        self._journal_mode = journal_mode
        self._busy_timeout_ms = busy_timeout_ms
        self._db: sqlite3.Connection | None = None
        self._file: _FileId | None = None
        self._is_read_only = False
        self._is_for_writing = False
        """The journal mode has been set, and everything else that only a writer needs."""
        self._cookie: int | None = None
        """SQLite's own count of changes to the schema, when it was last checked."""
        self._store_id = ""

    @property
    def token(self) -> str:
        """Which database this is: one that was made anew under the same path gives another token."""
        if self._file is None:
            return f"memory:store:{self._store_id}"
        device, inode = self._file
        return f"file:{device}:{inode}:0:store:{self._store_id}"

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection | None]:
        """A transaction that sees one state of the database; None where there is none yet.

        Raises:
            WrongDatabase, UnsafePath, DatabaseBusy, SessionCorruption, OSError
        """
        with translated(self.path):
            db = self._connect(creates=False)
            if db is None:
                yield None
                return
            with _transaction(db, "BEGIN"):
                self._check(db)
                yield db

    @contextlib.contextmanager
    def writing(self, *, creates: bool) -> Iterator[sqlite3.Connection]:
        """A transaction that nobody else writes beside; durable when it is over.

        Args:
            creates: make the database where there is none; else that is an error.

        Raises:
            SessionFileChanged: the database is gone.
            WrongDatabase, UnsafePath, DatabaseBusy, SessionCorruption, OSError: nothing was stored.
        """
        with translated(self.path):
            db = self._connect(creates=creates)
            if db is None:
                raise SessionFileChanged(self.path, "the database is gone")
            if self._is_read_only:
                raise PermissionError(13, "the database is read-only", self.path)
            self._prepare_to_write(db)
            with _transaction(db, "BEGIN IMMEDIATE"):
                self._check(db)
                yield db

    def check(self) -> None:
        """Refuse a database that is not ours, before anything else is done. Raises as `reading`."""
        with self.reading():
            pass

    def holds(self, session_id: str) -> bool:
        """Whether a session is stored, as far as can be told at once: this never waits and raises nothing.

        It asks through a connection of its own, since the other one may be at work in another thread.
        """
        if self.is_memory:
            return False
        try:
            uri = _uri(Path(self.path), "rw")
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None)) as db:
                found = db.execute(
                    "SELECT 1 FROM sessions WHERE id = CAST(? AS TEXT)", (utf8(session_id),)
                ).fetchone()
        except (sqlite3.Error, OSError):
            return False
        return found is not None

    def forget_deleted(self) -> None:
        """Take what was deleted out of the write-ahead log too, as far as nobody is in the way."""
        if self._db is not None:
            with contextlib.suppress(sqlite3.Error), self._without_waiting(self._db) as db:
                db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()

    def close(self) -> None:
        """Close the connection. The next use opens it again; a database in memory is gone."""
        db, self._db = self._db, None
        self._is_for_writing = False
        self._cookie = None
        if db is not None:
            with translated(self.path):
                db.close()

    # -- opening -----------------------------------------------------------------------------------

    def _connect(self, *, creates: bool) -> sqlite3.Connection | None:
        if self._db is not None and not self._has_moved():
            return self._db
        self.close()
        if self.is_memory:
            self._db = self._open(MEMORY, creates=True)
            return self._db
        path = Path(self.path)
        found = check_file(path)
        if found is None:
            if not creates:
                return None
            create_file(path)
            found = path.lstat()
        if found.st_size == 1:  # SQLite takes it for an empty file and would write over it
            raise WrongDatabase(self.path, "it is no SQLite database")
        self._is_read_only = not os.access(path, os.W_OK)
        uri = _uri_without_locks(path) if self._is_read_only else _uri(path, "rw")
        self._file = found.st_dev, found.st_ino
        self._db = self._open(uri, creates=creates)
        return self._db

    def _has_moved(self) -> bool:
        """Whether another file, or none, lies where the open one was."""
        if self.is_memory:
            return False
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return True
        return (found.st_dev, found.st_ino) != self._file

    def _open(self, uri: str, *, creates: bool) -> sqlite3.Connection | None:
        """A connection whose schema was checked; None for a database that nobody has put anything into."""
        db = sqlite3.connect(
            uri,
            uri=uri != MEMORY,
            timeout=self._busy_timeout_ms / 1000,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            db.text_factory = schema.Text
            self._set(db, "trusted_schema", "OFF", 0)
            self._set(db, "mmap_size", "0", None if self.is_memory else 0)
            self._set(db, "foreign_keys", "ON", 1)
            with _transaction(db, "BEGIN IMMEDIATE" if creates else "BEGIN"):
                is_empty = schema.is_pristine(db)
                if is_empty and creates:
                    schema.create_schema(db)
                if creates or not is_empty:
                    self._check(db)
        except BaseException:
            db.close()
            raise
        if is_empty and not creates:
            db.close()
            return None
        return db

    def _set(self, db: sqlite3.Connection, name: str, value: str, expected: int | None) -> None:
        db.execute(f"PRAGMA {name} = {value}").fetchall()
        if (found := schema.pragma(db, name)) != expected:
            raise PersistenceError(f"{self.path}: SQLite keeps {name} at {found}, expected {expected}")

    def _check(self, db: sqlite3.Connection) -> None:
        """Check within a transaction what may have changed since the last one."""
        cookie = schema.pragma(db, "schema_version")
        if cookie == self._cookie:
            schema.check_identity(db, self.path)
        else:
            self._store_id = schema.check_schema(db, self.path)
            self._cookie = cookie

    def _prepare_to_write(self, db: sqlite3.Connection) -> None:
        if self._is_for_writing:
            return
        self._switch_journal(db)
        self._set(db, "synchronous", "FULL", 2)
        self._set(db, "secure_delete", "ON", 1)
        self._is_for_writing = True

    def _switch_journal(self, db: sqlite3.Connection) -> None:
        """Set the journal mode; somebody who is in the way is waited for no longer than for a write."""
        wanted = "memory" if self.is_memory else self._journal_mode
        deadline = time.monotonic() + self._busy_timeout_ms / 1000
        with self._without_waiting(db):
            while True:
                try:
                    found = bytes(db.execute(f"PRAGMA journal_mode = {wanted}").fetchone()[0]).decode()
                    break
                except sqlite3.OperationalError as error:
                    if not is_busy(error):
                        raise
                    if time.monotonic() >= deadline:
                        raise DatabaseBusy(self.path) from error
                time.sleep(_SWITCH_RETRY_S)
        if found != wanted:
            raise PersistenceError(f"{self.path}: SQLite keeps journal mode {found}, expected {wanted}")

    @contextlib.contextmanager
    def _without_waiting(self, db: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        db.execute("PRAGMA busy_timeout = 0").fetchall()
        try:
            yield db
        finally:
            db.execute(f"PRAGMA busy_timeout = {self._busy_timeout_ms}").fetchall()


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection, begin: str) -> Iterator[None]:
    db.execute(begin)
    try:
        yield
        if db.in_transaction:
            db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            if db.in_transaction:
                db.execute("ROLLBACK")
        raise


def _uri(path: Path, mode: str) -> str:
    return f"{path.as_uri()}?mode={mode}"


def _uri_without_locks(path: Path) -> str:
    """How to open a database that nobody here may write, so that no file beside it is made that would stay.

    Never for one that this process writes elsewhere: closing it would give away the locks held there.
    """
    has_journal = any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal"))
    return _uri(path, "ro") + ("" if has_journal else "&immutable=1")
