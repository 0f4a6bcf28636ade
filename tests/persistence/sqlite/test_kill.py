"""A process that is killed in any write of a change: the database holds the old state or the new one.

The system kills at a place that is chosen: a file may not grow beyond so many bytes (SIGXFSZ), be it the
database, its journal, its write-ahead log or the index of that. The child is a fork and ends at once, so that
nothing of ours runs after it.
"""

import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dsh.persistence.fork import fork_stored
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.sqlite.database import JournalMode
from dsh.persistence.view import build_view
from tests.persistence.sqlite.made import by_hand, events_of, log, titled

Change = Callable[[SqliteBackend], object]
MODES: list[JournalMode] = ["wal", "delete", "persist"]
STEP = 8192
"""Between two places. Writes go by pages, so that each is met; a few kinds of bytes are met twice."""


def child(work: Callable[[], object], limit: int | None = None) -> bool:
    """Do something in a process of its own that ends without tidying up; whether it came to its end."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            sys.dont_write_bytecode = True  # it would be torn
            if limit is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            work()
        except BaseException:
            os._exit(3)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGXFSZ
        return False
    assert os.WEXITSTATUS(status) == 0
    return True


SESSION = titled(log(deltas=5, ends=False), 40)
MORE = titled(SESSION.copy(), 10)
OTHER = titled(log("t"), 5)


def begin(backend: SqliteBackend) -> None:
    backend.append(OTHER.header, OTHER.entries())


def go_on(backend: SqliteBackend) -> None:
    stored = backend.open("s")
    assert stored is not None
    backend.append(stored.header, MORE.entries(SESSION.length))
    backend.release("s")


def repair(backend: SqliteBackend) -> None:
    stored = backend.open("s")
    assert stored is not None
    view = build_view(stored)
    backend.repair(stored, view.closers, view.recovered)
    backend.release("s")


def fork(backend: SqliteBackend) -> None:
    fork_stored(backend, "s", child_id="u")


def delete(backend: SqliteBackend) -> None:
    backend.delete("s")


Contents = dict[str, list[dict[str, object]]]


def contents(path: Path) -> Contents:
    """All sessions, as another process finds them. A tail that is torn stays out, as in any view."""
    backend = SqliteBackend(path, busy_timeout_ms=0)
    listing = backend.list()
    assert listing.problems == ()
    found: Contents = {}
    for session in listing.sessions:
        stored = backend.load(session.header.id)
        assert stored is not None
        view = build_view(stored)
        found[session.header.id] = events_of(view)[: view.stored_length]
    backend.close()
    return found


def stage(path: Path, mode: JournalMode, *, is_torn: bool) -> None:
    """A database as a killed process leaves it: its write-ahead log was never put into it."""

    def work() -> None:
        backend = SqliteBackend(path, journal_mode=mode)
        backend.append(SESSION.header, SESSION.entries())
        if is_torn:
            with by_hand(path) as db:
                db.execute("INSERT INTO events VALUES ('s', 900, 'todo/write', 1, '{', NULL, NULL, NULL)")

    assert child(work)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("change", [begin, go_on, repair, fork, delete])
def test_a_change_that_is_killed_in_any_write_is_whole_or_was_not(
    tmp_path: Path, mode: JournalMode, change: Change
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir(mode=0o700)
    stage(old / "s.db", mode, is_torn=change is repair)
    shutil.copytree(old, new)
    change(backend := SqliteBackend(new / "s.db", journal_mode=mode))
    backend.close()
    before, after = contents(new_copy(old, tmp_path / "before")), contents(new / "s.db")
    seen: list[bool] = []

    for limit in range(0, 1 << 20, STEP):
        path = new_copy(old, tmp_path / str(limit))
        has_ended = child(lambda path=path: change(SqliteBackend(path, journal_mode=mode)), limit)  # type: ignore[misc]

        found = shape(contents(path))
        assert found in (shape(before), shape(after))
        seen.append(found == shape(after))
        if has_ended:
            break
        if not seen[-1]:
            change(backend := SqliteBackend(path, journal_mode=mode))
            backend.close()
            assert shape(contents(path)) == shape(after)
        kept = {"s.db-owners"} | ({"s.db-journal"} if mode == "persist" else set())
        assert {file.name for file in path.parent.iterdir()} <= {"s.db"} | kept
        shutil.rmtree(path.parent)
    assert len(seen) > 5 and seen[-1] and not seen[0]


def new_copy(folder: Path, target: Path) -> Path:
    shutil.copytree(folder, target)
    return target / "s.db"


def shape(found: Contents) -> Contents:
    """Without the times of events that were made up now."""
    return {
        key: [event if event["type"] != "session/end-seed" else {"type": event["type"]} for event in events]
        for key, events in found.items()
    }
