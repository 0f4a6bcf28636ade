"""What SQLite reports, in the words of persistence. No error of `sqlite3` itself leaves this package."""

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterator

from dsh.persistence.error import PersistenceError, SessionCorruption, WrongDatabase


class DatabaseBusy(PersistenceError):
    """Another program held the database for longer than we wait. Nothing was changed; a retry may do."""

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: the database is locked by another program",
            code="SESSION_DATABASE_BUSY",
            hint="end what holds it, or let the row wait longer: busyTimeoutMs",
        )


class UnsafePath(PersistenceError):
    """The database, or the folder it lies in, is open to others or not what it should be."""

    exit_code = 1

    def __init__(self, path: str, found: str, hint: str) -> None:
        self.path = path
        super().__init__(f"{path}: {found}", code="SESSION_UNSAFE_PATH", hint=hint)


_ERRNO = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_READONLY: errno.EACCES,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_IOERR: errno.EIO,
}
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection is in the way."""
    return primary_code(error) in _BUSY


def primary_code(error: sqlite3.Error) -> int:
    """The basic result code behind an error; -1 where `sqlite3` raised it by itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return -1 if code is None else int(code) & 0xFF


@contextlib.contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise what goes wrong in SQLite as one of ours.

    Raises:
        DatabaseBusy, SessionCorruption, WrongDatabase, PersistenceError
        OSError: the system refused; `errno` says why as well as SQLite knows.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise translate(error, path) from error
    except UnicodeDecodeError as error:
        raise SessionCorruption("the schema of the database is no text", path=path) from error
    except OverflowError as error:
        raise PersistenceError(f"{path}: a number does not fit into a column: {error}") from error


def translate(error: sqlite3.Error, path: str) -> PersistenceError | OSError:
    """Our error for one of SQLite's."""
    code = primary_code(error)
    if code in _BUSY:
        return DatabaseBusy(path)
    if code == sqlite3.SQLITE_CORRUPT:
        return SessionCorruption(str(error), path=path)
    if code == sqlite3.SQLITE_NOTADB:
        return WrongDatabase(path, "it is no SQLite database")
    if (number := _ERRNO.get(code)) is not None:
        if not os.path.lexists(path) and number == errno.EACCES and path != ":memory:":
            number = errno.ENOENT
        return OSError(number, f"{os.strerror(number)} (SQLite: {error})", path)
    return PersistenceError(f"{path}: {error}")
