"""The schema of a session database. Its text is part of the format (`spec/persistence.md` §7).

There is no migration: a database with any difference is refused and left as it is.
"""

import re
import sqlite3
import uuid

from dsh.persistence.error import SessionCorruption, WrongDatabase

APPLICATION_ID = 1146308688
"""`DSHP` as a number."""
USER_VERSION = 17

_COLUMNS = {
    "persistence_state": (
        "singleton INTEGER PRIMARY KEY CHECK (singleton = 1)",
        "store_id TEXT NOT NULL",
    ),
    "sessions": (
        "id TEXT PRIMARY KEY",
        "version INTEGER NOT NULL",
        "created_at INTEGER NOT NULL",
        "cwd TEXT",
        "parent_session TEXT",
        "seed_length INTEGER",
        "origin TEXT",
        "delegation_depth INTEGER",
        "agent_preset TEXT",
        "incarnation TEXT NOT NULL",
        "revision INTEGER NOT NULL",
    ),
    "events": (
        "session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE",
        "seq INTEGER NOT NULL",
        "type TEXT NOT NULL",
        "time INTEGER NOT NULL",
        "data ANY NOT NULL",
        "source_event_seqs ANY",
        "surface_op TEXT",
        "ignorable INTEGER CHECK (ignorable IS NULL OR ignorable IN (0, 1))",
        "PRIMARY KEY (session_id, seq)",
    ),
}

TABLES = {name: f"CREATE TABLE {name} ( {', '.join(columns)} ) STRICT" for name, columns in _COLUMNS.items()}
"""The statement of each table, as the database keeps it once white space is collapsed."""

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_WHITE = re.compile(r"\s+")
_OTHER_FILE = "move it away, or set path to another file; this one was not changed"


class Text(bytes):
    """A TEXT value as it is stored; a BLOB comes as plain bytes. Set as the connection's text factory."""

    __slots__ = ()


def is_uuid(value: object) -> bool:
    """Whether a stored value is the text of a UUID."""
    return isinstance(value, Text) and _UUID.fullmatch(value.decode("utf-8", "replace")) is not None


def pragma(db: sqlite3.Connection, name: str) -> int | None:
    """The number behind a pragma; None where it has none."""
    row = db.execute(f"PRAGMA {name}").fetchone()
    return None if row is None else int(row[0])


def is_pristine(db: sqlite3.Connection) -> bool:
    """Whether nobody has put anything into the database yet."""
    return not (pragma(db, "user_version") or pragma(db, "application_id") or _objects(db))


def create_schema(db: sqlite3.Connection) -> None:
    """Make a pristine database one of sessions, within the transaction that is open."""
    for statement in TABLES.values():
        db.execute(statement)
    db.execute("INSERT INTO persistence_state VALUES (1, ?)", (str(uuid.uuid4()),))
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {USER_VERSION}")


def check_identity(db: sqlite3.Connection, place: str) -> None:
    """Refuse a database that is not one of sessions, by its two numbers.

    Raises:
        WrongDatabase: another program's, or of another version.
    """
    application, version = pragma(db, "application_id"), pragma(db, "user_version")
    if application != APPLICATION_ID:
        raise WrongDatabase(
            place,
            f"the database is another program's: application_id {application}, expected {APPLICATION_ID}",
            hint=_OTHER_FILE,
        )
    if version != USER_VERSION:
        raise WrongDatabase(
            place,
            f"the schema has version {version}, expected {USER_VERSION}; there is no migration",
            hint=_OTHER_FILE,
        )


def check_schema(db: sqlite3.Connection, place: str) -> str:
    """Refuse a database whose schema differs in anything. Returns the id of the store.

    Raises:
        WrongDatabase: a table is missing, different or too many.
        SessionCorruption: the id of the store is none.
    """
    check_identity(db, place)
    found = _objects(db)
    for name, statement in TABLES.items():
        if found.pop(("table", name), None) != statement:
            raise WrongDatabase(place, f"table {name} is not the one of the schema", hint=_OTHER_FILE)
    if found:
        kind, name = min(found)
        raise WrongDatabase(place, f"there is a {kind} {name!r:.60} that is not ours", hint=_OTHER_FILE)
    rows = db.execute("SELECT store_id FROM persistence_state").fetchall()
    if len(rows) != 1 or not is_uuid(rows[0][0]):
        raise SessionCorruption("the database has no store_id that is a UUID", path=place)
    store_id: str = rows[0][0].decode()
    return store_id


def _objects(db: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """The objects of the database by type and name, with the text that created them."""
    rows = db.execute("SELECT type, name, sql FROM sqlite_schema WHERE substr(name, 1, 7) <> 'sqlite_'")
    return {
        (_plain(kind), _plain(name)): _WHITE.sub(" ", _plain(sql or b"")).strip() for kind, name, sql in rows
    }


def _plain(text: bytes) -> str:
    return text.decode("utf-8", "replace")
