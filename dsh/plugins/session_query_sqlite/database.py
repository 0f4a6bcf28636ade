"""The database of the search index: its schema, and opening it without touching what is not ours."""

import os
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from dsh.capabilities.session_query_error import SessionQueryError
from dsh.plugins.session_query_sqlite.text import folded, unindexed

P = ParamSpec("P")
T = TypeVar("T")

APPLICATION_ID = 1146308689
SCHEMA_VERSION = 8
BUSY_TIMEOUT_MS = 5_000
_DOCUMENTS = (
    "documents (id INTEGER PRIMARY KEY, session TEXT NOT NULL, seq INTEGER NOT NULL, type TEXT NOT NULL, "
    "time INTEGER NOT NULL, surface TEXT NOT NULL, length INTEGER NOT NULL, text TEXT NOT NULL) STRICT"
)
_TEXTS = "texts USING fts5(text, content='documents', content_rowid='id', tokenize='unicode61')"
_STORED = (
    "CREATE TABLE sessions (id TEXT PRIMARY KEY, revision TEXT NOT NULL, problem TEXT, message TEXT) STRICT",
    f"CREATE TABLE {_DOCUMENTS}",
    "CREATE INDEX documents_session ON documents (session)",
    f"CREATE VIRTUAL TABLE {_TEXTS}",
)
_TEMPORARY = (
    "PRAGMA temp_store = MEMORY",
    f"CREATE TEMP TABLE live_{_DOCUMENTS}",
    "CREATE INDEX temp.live_session ON live_documents (session)",
    "CREATE VIRTUAL TABLE temp.live_" + _TEXTS.replace("content='documents'", "content='live_documents'"),
    "CREATE TEMP TABLE allowed (session TEXT PRIMARY KEY, is_live INTEGER NOT NULL) STRICT",
)


def refusals_told(function: Callable[P, T]) -> Callable[P, T]:
    """What SQLite or the system refuses is told under the index's own code."""

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except (sqlite3.Error, OSError) as error:
            raise SessionQueryError(
                "INDEX_FAILED",
                f"the search index cannot be used: {error}",
                hint="delete its file, or set another path on the row session-query-sqlite",
            ) from error

    return run


@refusals_told
def open_database(path: str, journal_mode: str) -> sqlite3.Connection:
    """Open the index, made anew where its schema is another one, with empty tables for live sessions.

    Raises:
        SessionQueryError: INDEX_FAILED, it cannot be opened or is something else; nothing was changed.
    """
    if path != ":memory:":
        path = str(Path(path).absolute())
        _claim(Path(path))
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_MS / 1000, isolation_level=None, check_same_thread=False
    )
    try:
        _set_up(connection, path, journal_mode)
    except BaseException:
        connection.close()
        raise
    return connection


def _set_up(connection: sqlite3.Connection, path: str, journal_mode: str) -> None:
    run = connection.execute
    run("PRAGMA trusted_schema = OFF")
    with transaction(connection):
        application = run("PRAGMA application_id").fetchone()[0]
        version = run("PRAGMA user_version").fetchone()[0]
        found = {row[0] for row in run("SELECT sql FROM sqlite_master")}
        if application != APPLICATION_ID and (application or version or found):
            raise SessionQueryError(
                "INDEX_FAILED",
                f"{path} is a database of something else",
                hint="set another path on the row session-query-sqlite",
            )
        if version != SCHEMA_VERSION or not found.issuperset(_STORED):
            for name in ("texts", "documents", "sessions"):
                run(f"DROP TABLE IF EXISTS {name}")
            for statement in _STORED:
                run(statement)
            run(f"PRAGMA application_id = {APPLICATION_ID}")
            run(f"PRAGMA user_version = {SCHEMA_VERSION}")
    mode = run(f"PRAGMA journal_mode = {journal_mode}").fetchone()[0]
    if mode != journal_mode and path != ":memory:":
        raise SessionQueryError(
            "INDEX_FAILED", f"{path}: journal mode {journal_mode} is refused, found {mode}"
        )
    run("PRAGMA synchronous = NORMAL")
    for statement in _TEMPORARY:
        run(statement)
    connection.create_function("holds", 2, _holds, deterministic=True)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it is written, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _holds(text: str, wanted: str) -> bool:
    return wanted in folded(unindexed(text))


def _claim(path: Path) -> None:
    """Make the file, readable by its owner only; one that is there must be a plain file.

    Raises:
        OSError: it cannot be made, or is a link or no file.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no plain file")
    finally:
        os.close(descriptor)
