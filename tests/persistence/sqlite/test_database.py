"""The database file: its schema to the letter, how it is opened, and what is refused and left as it is."""

import os
import sqlite3
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from dsh.persistence.backend import Listing
from dsh.persistence.error import PersistenceError, SessionCorruption, SessionFileChanged, WrongDatabase
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.sqlite.database import JournalMode
from dsh.persistence.sqlite.error import DatabaseBusy, UnsafePath
from dsh.persistence.sqlite.schema import TABLES
from dsh.plugins import session_persistence_sqlite as row
from tests.persistence.sqlite.made import by_hand, events_of, log, rows_by_hand, stored, titled, view_of


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- what is written -------------------------------------------------------------------------------


def test_the_schema_is_that_of_the_specification(tmp_path: Path) -> None:
    path = stored(tmp_path / "s.db", log())
    with by_hand(path) as db:
        objects = dict(db.execute("SELECT name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'"))
        assert objects == {
            "persistence_state": "CREATE TABLE persistence_state ( singleton INTEGER PRIMARY KEY "
            "CHECK (singleton = 1), store_id TEXT NOT NULL ) STRICT",
            "sessions": "CREATE TABLE sessions ( id TEXT PRIMARY KEY, version INTEGER NOT NULL, "
            "created_at INTEGER NOT NULL, cwd TEXT, parent_session TEXT, seed_length INTEGER, origin TEXT, "
            "delegation_depth INTEGER, agent_preset TEXT, incarnation TEXT NOT NULL, "
            "revision INTEGER NOT NULL ) STRICT",
            "events": "CREATE TABLE events ( session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE "
            "CASCADE, seq INTEGER NOT NULL, type TEXT NOT NULL, time INTEGER NOT NULL, data ANY NOT NULL, "
            "source_event_seqs ANY, surface_op TEXT, ignorable INTEGER CHECK (ignorable IS NULL OR "
            "ignorable IN (0, 1)), PRIMARY KEY (session_id, seq) ) STRICT",
        }
        assert db.execute("PRAGMA user_version").fetchone() == (17,)
        assert db.execute("PRAGMA application_id").fetchone() == (0x44534850,)
        ((singleton, store_id),) = db.execute("SELECT * FROM persistence_state")
        assert singleton == 1 and str(uuid.UUID(store_id)) == store_id
        ((incarnation, revision),) = db.execute("SELECT incarnation, revision FROM sessions")
        assert str(uuid.UUID(incarnation)) == incarnation and revision == 1


def test_folder_and_file_are_the_users_alone(tmp_path: Path) -> None:
    path = stored(tmp_path / "a" / "b" / "s.db", log())

    assert path.stat().st_mode & 0o777 == 0o600
    assert [folder.stat().st_mode & 0o777 for folder in path.parents[:2]] == [0o700, 0o700]


def test_a_session_that_was_never_written_leaves_no_file(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "x" / "s.db")
    header = log().header

    assert not backend.is_taken(header) and backend.locate(header) is None
    looks = (backend.load, backend.revision, backend.figures, backend.read_raw, backend.open, backend.find)
    assert not any(look("s") for look in looks) and backend.load_from("s", 0) is None
    assert backend.ids() == [] and backend.list() == Listing((), ())
    assert not backend.delete("s")
    backend.close()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["wal", "delete", "truncate", "persist"])
def test_every_journal_mode_stores_and_reads(tmp_path: Path, mode: JournalMode) -> None:
    session = log(deltas=50)
    backend = SqliteBackend(tmp_path / "s.db", journal_mode=mode)
    backend.append(session.header, session.entries()[:1])
    backend.append(session.header, session.entries(1))
    other = SqliteBackend(tmp_path / "s.db")  # reading leaves the mode of the file alone
    assert events_of(view_of(other, "s")) == events_of(session)
    other.close()

    with by_hand(tmp_path / "s.db") as db:
        is_wal = db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
        assert is_wal == (mode == "wal")
    backend.close()


def test_what_is_deleted_is_gone_from_the_files(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "s.db")
    kept, secret = log("kept"), log("secret")
    titled(secret, 1, "xyzzy-plugh")
    for session in (kept, secret):
        backend.append(session.header, session.entries())
        backend.release(session.id)
    assert any(b"xyzzy-plugh" in data for data in bytes_of(tmp_path).values())

    assert backend.delete("secret")

    assert not any(b"xyzzy-plugh" in data for data in bytes_of(tmp_path).values())
    assert events_of(view_of(backend, "kept")) == events_of(kept)
    assert not list((tmp_path / "s.db-owners").iterdir())
    backend.close()


# -- what is refused -------------------------------------------------------------------------------


def refuses(path: Path, match: str, error: type[PersistenceError] = WrongDatabase) -> PersistenceError:
    """Reading and writing are both refused, and every byte stays."""
    before = bytes_of(path.parent)
    session = log("new")
    for _ in range(2):
        backend = SqliteBackend(path, busy_timeout_ms=0)
        with pytest.raises(error, match=match):
            backend.list()
        with pytest.raises(error, match=match):
            backend.load("s")
        with pytest.raises(error, match=match) as caught:
            backend.append(session.header, session.entries())
        assert not backend.is_taken(session.header)
        backend.close()
        assert bytes_of(path.parent) == before
    return caught.value


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "s.db").write_bytes(b"just some text, and more of it\n" * 100)
    (tmp_path / "s.db").chmod(0o600)
    assert refuses(tmp_path / "s.db", "no SQLite database").code == "SESSION_WRONG_DATABASE"


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("PRAGMA application_id = 1", "another program's"),
        ("PRAGMA application_id = 0", "another program's"),
        ("PRAGMA user_version = 15", "version 15, expected 17"),
        ("PRAGMA user_version = 18", "version 18"),
        ("PRAGMA user_version = 0", "version 0"),
        ("ALTER TABLE sessions ADD COLUMN extra TEXT", "table sessions"),
        ("ALTER TABLE events RENAME COLUMN time TO at", "table events"),
        ("CREATE TABLE other (x)", "table 'other'"),
        ("CREATE INDEX by_type ON events (type)", "index 'by_type'"),
        ("CREATE VIEW v AS SELECT 1", "view 'v'"),
        ("CREATE TRIGGER t AFTER INSERT ON events BEGIN DELETE FROM events; END", "trigger 't'"),
        ("DROP TABLE persistence_state", "table persistence_state"),
    ],
)
def test_a_database_that_differs_in_anything(tmp_path: Path, statement: str, match: str) -> None:
    path = stored(tmp_path / "s.db", log())
    with by_hand(path) as db:
        db.execute(statement)
    refuses(path, match)


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE x (y)", "PRAGMA application_id = 7", "PRAGMA user_version = 7"]
)
def test_a_database_of_somebody_else_that_is_otherwise_new(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "s.db"
    path.touch(mode=0o600)
    with by_hand(path) as db:
        db.execute(statement)
    refuses(path, "another program's")


def test_one_column_of_another_type_is_another_schema(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.touch(mode=0o600)
    with by_hand(path) as db:
        for statement in TABLES.values():
            db.execute(statement.replace("time INTEGER", "time REAL"))
        db.execute("INSERT INTO persistence_state VALUES (1, ?)", (str(uuid.uuid4()),))
        db.execute("PRAGMA application_id = 1146308688")
        db.execute("PRAGMA user_version = 17")
    refuses(path, "table events is not the one of the schema")


def test_white_space_in_a_statement_is_no_difference(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    path.touch(mode=0o600)
    with by_hand(path) as db:
        for statement in TABLES.values():
            db.execute(statement.replace(" ", "\n   ").replace(",\n   ", ", \t"))
        db.execute("INSERT INTO persistence_state VALUES (1, ?)", (str(uuid.uuid4()),))
        db.execute("PRAGMA application_id = 1146308688")
        db.execute("PRAGMA user_version = 17")
    session = log()
    backend = SqliteBackend(path)
    backend.append(session.header, session.entries())
    assert events_of(view_of(backend, "s")) == events_of(session)
    backend.close()


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM persistence_state", "UPDATE persistence_state SET store_id = 'x'"],
)
def test_a_store_without_an_id_is_damaged(tmp_path: Path, statement: str) -> None:
    path = stored(tmp_path / "s.db", log())
    with by_hand(path) as db:
        db.execute(statement)
    refuses(path, "store_id", SessionCorruption)


def test_a_schema_that_changes_while_it_is_open_is_noticed_by_the_next_write(tmp_path: Path) -> None:
    session = log()
    backend = SqliteBackend(tmp_path / "s.db")
    backend.append(session.header, session.entries()[:1])
    with by_hand(tmp_path / "s.db") as db:
        db.execute("CREATE TABLE other (x)")

    with pytest.raises(WrongDatabase, match="other"):
        backend.append(session.header, session.entries(1))
    with by_hand(tmp_path / "s.db") as db:
        db.execute("DROP TABLE other")
    backend.append(session.header, session.entries(1))

    assert events_of(view_of(backend, "s")) == events_of(session)
    backend.close()


@pytest.mark.parametrize("page", range(1, 40, 3))
def test_damaged_pages_are_a_named_refusal_or_the_whole_log(tmp_path: Path, page: int) -> None:
    session = titled(log(deltas=5), 300)
    path = stored(tmp_path / "s.db", session)
    data = bytearray(path.read_bytes())
    at = page % (len(data) // 4096) * 4096
    data[at + (100 if at == 0 else 0) : at + 200] = b"\xa5" * (100 if at == 0 else 200)
    path.write_bytes(data)

    backend = SqliteBackend(path)
    try:
        found = view_of(backend, "s")
        assert events_of(found)[: found.stored_length] == events_of(session)[: found.stored_length]
    except (PersistenceError, OSError):
        pass
    backend.close()
    assert path.read_bytes() == data


# -- who may get at it -----------------------------------------------------------------------------


def test_a_file_or_folder_open_to_others_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "d"
    path = stored(folder / "s.db", log())
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        error = refuses(path, "open to others", UnsafePath)
        assert "chmod 600" in error.hint and error.code == "SESSION_UNSAFE_PATH"
    path.chmod(0o600)
    for mode in (0o770, 0o702):
        folder.chmod(mode)
        refuses(path, "others may write", UnsafePath)
    folder.chmod(0o755)
    assert SqliteBackend(path).ids() == ["s"]


def test_links_and_what_is_no_file_are_refused(tmp_path: Path) -> None:
    real = stored(tmp_path / "real" / "s.db", log())
    (tmp_path / "link.db").symlink_to(real)
    (tmp_path / "dangling.db").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.db").mkdir()
    os.mkfifo(tmp_path / "pipe.db", 0o600)
    (tmp_path / "linked").symlink_to(tmp_path / "real")
    for name in ("link.db", "dangling.db", "folder.db", "pipe.db"):
        with pytest.raises(UnsafePath, match="no regular file"):
            SqliteBackend(tmp_path / name).list()
    for call in (SqliteBackend.list, SqliteBackend.ids):
        with pytest.raises(UnsafePath, match="no folder of its own"):
            call(SqliteBackend(tmp_path / "linked" / "s.db"))
    assert not (tmp_path / "nowhere").exists()


def test_characters_that_mean_something_in_a_uri_are_part_of_the_name(tmp_path: Path) -> None:
    path = stored(tmp_path / "a?mode=memory#b%20c" / "file:s.db", log())

    assert path.is_file() and SqliteBackend(path).ids() == ["s"]


# -- other programs --------------------------------------------------------------------------------

HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_a_write_waits_for_another_programs_but_not_for_ever(tmp_path: Path, mode: JournalMode) -> None:
    session = log()
    backend = SqliteBackend(tmp_path / "s.db", journal_mode=mode, busy_timeout_ms=30)
    backend.append(session.header, session.entries()[:1])
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "s.db")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        with pytest.raises(DatabaseBusy, match="locked by another program") as caught:
            backend.append(session.header, session.entries(1))
        assert caught.value.code == "SESSION_DATABASE_BUSY"
        fresh = SqliteBackend(tmp_path / "s.db", journal_mode=mode, busy_timeout_ms=0)
        assert fresh.is_taken(session.header)
        assert events_of(view_of(fresh, "s"))[:1] == events_of(session)[:1]  # reading goes on
        with pytest.raises(DatabaseBusy):
            fresh.append(log("t").header, log("t").entries())
        fresh.close()
        other.kill()

    backend.append(session.header, session.entries(1))
    assert events_of(view_of(backend, "s")) == events_of(session)
    backend.close()


TRY = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None)
try:
    db.execute("BEGIN IMMEDIATE")
    print("got it")
except sqlite3.OperationalError as error:
    print(error)
"""


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_looking_gives_no_lock_of_this_process_away(tmp_path: Path, mode: JournalMode) -> None:
    path = stored(tmp_path / "s.db", log())
    writer = SqliteBackend(path, journal_mode=mode)
    writer.append(log("t").header, log("t").entries())
    with writer._database.writing(creates=False):
        other = SqliteBackend(path, busy_timeout_ms=0)
        assert other.is_taken(log().header) and writer.is_taken(log().header)
        assert row.usable_path(str(path)) == str(path)
        other.check()
        assert other.find("s") is not None
        other.close()
        tried = subprocess.run(
            [sys.executable, "-c", TRY, str(path)], capture_output=True, text=True, check=True
        )
        assert tried.stdout == "database is locked\n"
    writer.close()


def test_a_database_that_is_gone_or_another_is_never_written_to(tmp_path: Path) -> None:
    session = log()
    path = tmp_path / "s.db"
    backend = SqliteBackend(path)
    backend.append(session.header, session.entries()[:1])
    for file in tmp_path.glob("s.db*"):
        if file.is_file():
            file.rename(tmp_path / f"away-{file.name}")

    with pytest.raises(SessionFileChanged, match="gone"):
        backend.append(session.header, session.entries(1))
    assert not path.exists()

    stored(path, log("t"))
    with pytest.raises(SessionFileChanged, match="deleted"):
        backend.append(session.header, session.entries(1))
    assert SqliteBackend(path).ids() == ["t"]
    backend.close()


def test_a_database_made_anew_has_another_revision(tmp_path: Path) -> None:
    path = stored(tmp_path / "s.db", log())
    backend = SqliteBackend(path)
    first = backend.revision("s")
    assert first == backend.revision("s") and first is not None
    for file in tmp_path.glob("s.db*"):
        if file.is_file():
            file.unlink()
    stored(path, log())

    assert backend.revision("s") not in (first, None)
    backend.close()


def test_a_full_disk_stores_nothing_and_the_batch_can_be_tried_again(tmp_path: Path) -> None:
    session = titled(log(), 40)
    backend = SqliteBackend(tmp_path / "s.db")
    backend.append(session.header, session.entries()[:1])
    db = backend._database._db
    assert db is not None
    (pages,) = db.execute("PRAGMA page_count").fetchone()
    db.execute(f"PRAGMA max_page_count = {int(pages) + 1}")

    with pytest.raises(OSError, match="No space left") as caught:
        backend.append(session.header, session.entries(1))
    assert caught.value.filename == str(tmp_path / "s.db")
    assert events_of(view_of(backend, "s"))[:1] == events_of(session)[:1]

    db.execute("PRAGMA max_page_count = 100000")
    backend.append(session.header, session.entries(1))
    assert events_of(view_of(backend, "s")) == events_of(session)
    backend.close()


LIMITED = """
import errno, resource, signal, sys
from pathlib import Path
from dsh.persistence.sqlite.backend import SqliteBackend
from tests.persistence.sqlite.made import log, titled
session = titled(log(), 200)
backend = SqliteBackend(Path(sys.argv[1]), journal_mode=sys.argv[2])
backend.append(session.header, session.entries()[:3])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (70_000, resource.RLIM_INFINITY))
try:
    backend.append(session.header, session.entries(3))
except OSError as error:
    print(errno.errorcode[error.errno])
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
backend.append(session.header, session.entries(3))
backend.close()
print(session.length)
"""


@pytest.mark.parametrize("mode", ["wal", "delete", "truncate", "persist"])
def test_a_write_that_the_system_refuses_stores_nothing_and_can_be_tried_again(
    tmp_path: Path, mode: str
) -> None:
    path = tmp_path / "s.db"
    said = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path), mode],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    ).stdout.split()

    assert said[0] in ("EIO", "ENOSPC")
    assert view_of(SqliteBackend(path), "s").stored_length == int(said[1])


@pytest.mark.parametrize("is_open_elsewhere", [True, False])
def test_a_read_only_file_is_read_and_a_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_open_elsewhere: bool
) -> None:
    session = log()
    path = stored(tmp_path / "s.db", session)
    writer = SqliteBackend(path)
    if is_open_elsewhere:
        writer.append(log("t").header, log("t").entries())
    monkeypatch.setattr(os, "access", lambda *_: False)
    before = bytes_of(tmp_path)

    backend = SqliteBackend(path)
    assert events_of(view_of(backend, "s")) == events_of(session)
    assert backend.ids() == ["s", "t"][: 1 + is_open_elsewhere]
    with pytest.raises(PermissionError, match="read-only"):
        backend.append(log("u").header, log("u").entries())
    backend.close()

    assert {name for name in bytes_of(tmp_path) if name.endswith("s.db")} <= before.keys()
    assert path.read_bytes() == before[str(path)]
    writer.close()


def test_rows_are_read_by_any_sqlite(tmp_path: Path) -> None:
    rows = rows_by_hand(stored(tmp_path / "s.db", log(deltas=4)))

    assert [(row[0], row[1], row[6]) for row in rows] == [
        (0, "turn/start", None),
        (1, "step/start", None),
        (2, "text-chunks", 0),
        (6, "step/end", None),
        (7, "turn/end", None),
    ]
    assert rows[2][3] == '{"turn":1,"step":1,"index":0,"dt":[1,1,1],"texts":["t0","t1","t2","t3"]}'


def test_no_error_of_sqlite3_leaves_the_package(tmp_path: Path) -> None:
    path = stored(tmp_path / "s.db", log())
    backend = SqliteBackend(path)
    backend.list()
    db = backend._database._db
    assert db is not None
    db.close()
    try:
        backend.list()
    except Exception as error:
        assert not isinstance(error, sqlite3.Error)
