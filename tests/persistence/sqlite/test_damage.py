"""A database that is flipped, cut, or on a failing disk: a log or a named refusal, and nothing changes."""

import errno
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from dsh.persistence.error import PersistenceError, SessionCorruption, SessionFileChanged
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.view import build_view
from tests.persistence.sqlite.made import events_of, golden, log, stored, titled, view_of


def looked_at(path: Path) -> int:
    """How many looks at the database were refused. Any other error is a failure."""
    refused = 0
    backend = SqliteBackend(path, busy_timeout_ms=0)
    for look in (
        backend.list,
        backend.ids,
        lambda: backend.figures("demo.1"),
        lambda: backend.load_from("demo.1", 9),
        lambda: None if (found := backend.load("demo.1")) is None else build_view(found),
    ):
        try:
            look()
        except (PersistenceError, OSError) as error:
            refused += 1
            assert str(path) in str(error)
    backend.close()
    return refused


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The golden log in a database."""
    folder = tmp_path_factory.mktemp("golden")
    header, entries = golden(folder)
    backend = SqliteBackend(folder / "s.db")
    backend.append(header, entries)
    backend.close()
    return (folder / "s.db").read_bytes()


def put(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("start", range(8))
def test_any_flipped_byte_is_harmless_or_refused(tmp_path: Path, database: bytes, start: int) -> None:
    refused = 0
    places = [*range(start, 100, 8), *range(100 + start * 11, len(database), 8 * 23)]
    for place in places:
        data = bytearray(database)
        data[place] ^= 0xFF
        path = put(tmp_path / "s.db", bytes(data))
        refused += looked_at(path)
        assert path.read_bytes() == data, place
    assert refused


def test_a_database_cut_anywhere_is_refused(tmp_path: Path, database: bytes) -> None:
    for length in range(1, len(database), 509):
        path = put(tmp_path / "s.db", database[:length])
        assert looked_at(path), length
        assert path.read_bytes() == database[:length]


def test_the_advice_on_a_damaged_row_fits_a_database(tmp_path: Path, database: bytes) -> None:
    path = put(tmp_path / "s.db", database)
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE events SET data = '{' WHERE seq = 0")
        db.commit()

    with pytest.raises(SessionCorruption) as caught:
        SqliteBackend(path).load("demo.1")

    assert "nothing was changed" in caught.value.hint and "file" not in caught.value.hint


def test_a_database_of_no_bytes_is_one_that_is_not_there_yet(tmp_path: Path) -> None:
    path = put(tmp_path / "s.db", b"")

    assert looked_at(path) == 0 and path.read_bytes() == b""
    stored(path, log())
    assert SqliteBackend(path).ids() == ["s"]


FULL = """
import resource, signal, sys
from pathlib import Path
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.view import build_view
from tests.persistence.sqlite.made import log, titled
session = titled(log(), 60)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
infinite = resource.RLIM_INFINITY
found = set()
for number, limit in enumerate(range(1000, 130_000, 5_000)):
    path = Path(sys.argv[1]) / f"{number}.db"
    backend = SqliteBackend(path, journal_mode=sys.argv[2])
    begun = number % 2 * 3
    if begun:
        backend.append(session.header, session.entries()[:begun])
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, infinite))
    try:
        backend.append(session.header, session.entries(begun))
        stored = session.length
    except OSError:
        stored = begun
    resource.setrlimit(resource.RLIMIT_FSIZE, (infinite, infinite))
    other = SqliteBackend(path)
    seen = other.load("s")
    assert (0 if seen is None else build_view(seen).stored_length) == stored, limit
    other.close()
    if stored < session.length:
        backend.append(session.header, session.entries(begun))
    backend.close()
    seen = SqliteBackend(path).load("s")
    assert build_view(seen).stored_length == session.length
    found.add(stored)
print(sorted(found))
"""


@pytest.mark.parametrize("mode", ["wal", "delete", "truncate", "persist"])
def test_wherever_a_write_is_refused_the_log_is_the_old_one_and_goes_on(tmp_path: Path, mode: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), mode],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, 3, 64]\n"


@contextmanager
def last_sync_fails(backend: SqliteBackend) -> Iterator[None]:
    """Transactions are stored, and yet what ends them reports a failure, as an ended journal does."""
    real = backend._database.writing

    @contextmanager
    def writing(*, creates: bool) -> Iterator[sqlite3.Connection]:
        with real(creates=creates) as db:
            yield db
        raise OSError(errno.EIO, "Input/output error", backend.path)

    backend._database.writing = writing  # type: ignore[method-assign]
    yield
    backend._database.writing = real  # type: ignore[method-assign]


@pytest.mark.parametrize("begun", [0, 3])
def test_an_append_that_failed_and_is_stored_all_the_same_is_written_anew(tmp_path: Path, begun: int) -> None:
    session = titled(log(), 5)
    backend = SqliteBackend(tmp_path / "s.db")
    if begun:
        backend.append(session.header, session.entries()[:begun])
    with last_sync_fails(backend):
        for stop in (begun + 1, begun + 3):
            with pytest.raises(OSError, match="Input/output"):
                backend.append(session.header, session.entries(begun)[: stop - begun])
            assert view_of(SqliteBackend(tmp_path / "s.db"), "s").stored_length == stop

    backend.append(session.header, session.entries(begun)[:4])
    backend.append(session.header, session.entries(begun + 4))

    assert events_of(view_of(backend, "s")) == events_of(session)
    backend.close()


def test_what_somebody_else_wrote_behind_a_doubtful_append_is_never_taken_back(tmp_path: Path) -> None:
    session = titled(log(), 5)
    backend = SqliteBackend(tmp_path / "s.db")
    backend.append(session.header, session.entries()[:3])
    with last_sync_fails(backend), pytest.raises(OSError, match="Input/output"):
        backend.append(session.header, session.entries(3)[:1])
    backend.rest("s")
    other = SqliteBackend(tmp_path / "s.db")
    other.open("s")
    other.append(session.header, session.entries(4))
    other.close()

    with pytest.raises(SessionFileChanged, match="9 events"):
        backend.append(session.header, session.entries(3))

    assert events_of(view_of(backend, "s")) == events_of(session)
    backend.close()


def test_a_deletion_that_fails_only_in_its_last_sync_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = log()
    backend = SqliteBackend(tmp_path / "s.db")
    backend.append(session.header, session.entries())
    backend.release("s")
    aside = backend._owners.keep_aside("s", b"cut off", 3)
    assert aside is not None
    writing = backend._database.writing

    @contextmanager
    def fails_late(*, creates: bool) -> Iterator[sqlite3.Connection]:
        with writing(creates=creates) as db:
            yield db
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="Input/output"):
        patch.setattr(backend._database, "writing", fails_late)
        backend.delete("s")
    assert backend.find("s") is None and aside.exists()

    assert not backend.delete("s")
    assert not aside.exists()
    backend.append(session.header, session.entries())
    assert backend.load("s") is not None
    backend.close()
