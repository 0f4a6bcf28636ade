"""Real jobs whose sessions are in a SQLite database: killed, on a disk that fails, beside other programs."""

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsh.persistence.error import PersistenceError, SessionBusy
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.view import LogView, build_view
from dsh.session.log import Session
from dsh.testing.workspace import Workspace, finish
from tests.e2e.model import Model
from tests.e2e.reply import bash, text
from tests.e2e.test_storage import BOUND_S, Answering, in_one_line, job, limited, logged, sent
from tests.process import wait_until

SWAP = """\
- id: session-persistence-jsonl
  remove: true
- insert:
    - id: session-persistence-sqlite
      name: session-persistence-sqlite
      config:
        path: !expr home('db/sessions.db')
        journalMode: {mode}
        busyTimeoutMs: {busy}
"""


@pytest.fixture
def database(space: Workspace) -> Path:
    """Where the workspace's runs store their sessions."""
    return use(space)


def use(space: Workspace, mode: str = "wal", busy: int = 5000) -> Path:
    (space.home / "dsh.patch.yml").write_text(SWAP.format(mode=mode, busy=busy))
    return space.home / "db" / "sessions.db"


def view_of(database: Path) -> LogView | None:
    """What another process finds of the one session, if anything is there."""
    backend = SqliteBackend(database)
    try:
        for session_id in backend.ids():
            found = backend.load(session_id)
            return None if found is None else build_view(found)
        return None
    finally:
        backend.close()


def rows_of(database: Path) -> int:
    view = view_of(database)
    return 0 if view is None else view.stored_length


def check_killed(space: Workspace, database: Path, model: Model, before: int) -> None:
    """What a kill may leave, whenever it came."""
    view = view_of(database)
    if view is None:
        assert (before, model.bodies()) == (0, [])
        return
    assert view.stored_length >= before and view.torn is None
    assert [event.seq for event in view.events()] == list(range(view.length))
    done = space.run("sessions", "inspect", view.header.id, "--json")
    assert (done.code, done.stderr) == (0, "")
    if view.closers:
        assert json.loads(done.stdout)["last"]["data"]["reason"] == {"kind": "interrupted"}
    if model.bodies():  # the request was durable before it was sent
        request = list(sent(model.bodies()[-1]))
        assert logged(json.loads(done.stdout)["messages"])[: len(request)] == request
    calls = {event.data["callId"] for event in view.events() if event.type == "tool/call"}
    for made, call_id in (("one", "c1"), ("two", "c2")):
        if (space.work / made).exists():  # the call was durable before it was carried out
            assert call_id in calls


@pytest.mark.parametrize("mode", ["wal", "delete"])
@pytest.mark.parametrize("rows", [1, 13, 31, 49, 70])
def test_a_job_killed_after_so_many_rows_leaves_a_log_that_opens_and_goes_on(
    space: Workspace, answering: Answering, rows: int, mode: str
) -> None:
    database = use(space, mode)
    model = answering(*job())
    process = space.start("run", "do it")
    wait_until(lambda: rows_of(database) >= rows or process.poll() is not None)
    before = rows_of(database)
    process.kill()
    assert finish(process).code in (-9, 0)
    check_killed(space, database, model, before)

    backend = SqliteBackend(database)
    (session_id,) = backend.ids()
    found = backend.open(session_id)  # its lock went with the process
    assert found is not None
    view = build_view(found)
    backend.repair(found, view.closers, view.recovered)
    following = Session(view.header)
    for event in view.events():
        following.load(event)
    following.append("turn/start", {"turn": 2})
    backend.append(view.header, following.entries(view.length))
    backend.close()

    after = view_of(database)
    assert after is not None and after.stored_length == view.length + 1
    stored = [event.to_json() for event in after.events(0, view.length)]
    assert stored == [event.to_json() for event in view.events()]


@pytest.mark.slow
@pytest.mark.parametrize("after_ms", range(100, 1300, 240))
def test_a_job_killed_at_any_time_leaves_a_log_that_opens(
    space: Workspace, answering: Answering, database: Path, after_ms: int
) -> None:
    model = answering(*job())
    process = space.start("run", "do it")
    time.sleep(after_ms / 1000)
    before = rows_of(database)
    process.kill()

    finish(process)
    check_killed(space, database, model, before)


def test_a_session_that_another_run_has_open_is_busy_and_loses_nothing(
    space: Workspace, answering: Answering, database: Path
) -> None:
    answering(text(*["word "] * 60, delay_ms=25))
    process = space.start("run", "do it")
    wait_until(lambda: rows_of(database) > 0)
    view = view_of(database)
    assert view is not None

    with pytest.raises(SessionBusy, match=f"process {process.pid} on host"):
        SqliteBackend(database).open(view.header.id)
    done = space.run("sessions", "delete", view.header.id, "--yes")

    assert done.code == 1 and f"process {process.pid} on host" in done.stderr
    assert finish(process).code == 0
    after = view_of(database)
    assert after is not None and not after.needs_repair
    assert [event.seq for event in after.events()] == list(range(after.length))
    assert [message["role"] for message in after.derive_messages()][-1] == "assistant"


def test_a_disk_that_fills_up_ends_the_run_and_keeps_what_was_stored(
    space: Workspace, answering: Answering, database: Path
) -> None:
    noise = [f"{number:05}" * 400 for number in range(200)]
    model = answering(bash("touch one"), text(*noise, delay_ms=5), bash("touch two"))
    limited(space, 160)

    done = space.run("run", "do it")

    assert str(database) in in_one_line(done, "SESSION_NOT_DURABLE")
    assert len(model.bodies()) == 2
    view = view_of(database)
    assert view is not None and view.torn is None
    assert "tool/result" in [event.type for event in view.events(0, view.stored_length)]


def remove(database: Path) -> None:
    for path in database.parent.glob("sessions.db*"):
        if path.is_file():
            path.unlink()


def replace(database: Path) -> None:
    other = database.with_name("other.db")
    made = sqlite3.connect(other)
    made.execute("CREATE TABLE mine (x)")
    made.close()
    other.chmod(0o600)
    other.replace(database)  # at once: the run looks at it at any time
    for path in database.parent.glob("sessions.db-*"):
        if path.is_file():
            path.unlink()


@pytest.mark.parametrize("change", [remove, replace])
def test_a_database_that_is_changed_under_a_run_is_not_written_any_more(
    space: Workspace, answering: Answering, database: Path, change: Callable[[Path], None]
) -> None:
    answering(text(*["word "] * 40, delay_ms=25))
    process = space.start("run", "do it")
    wait_until(lambda: rows_of(database) > 0)
    change(database)
    left = database.read_bytes() if database.exists() else None

    done = finish(process)

    code = "SESSION_FILE_CHANGED" if change is remove else "SESSION_WRONG_DATABASE"
    assert code in done.stderr and str(database) in done.stderr and "Traceback" not in done.stderr
    assert done.code != 0
    assert (database.read_bytes() if database.exists() else None) == left


def test_a_database_that_stays_locked_ends_the_run_in_bounded_time(
    space: Workspace, answering: Answering
) -> None:
    database = use(space, busy=50)
    model = answering(text("hi"))
    assert space.run("run", "first").code == 0
    holder = sqlite3.connect(database, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()

    done = space.run("run", "do it")

    assert time.monotonic() - begun < BOUND_S
    assert "locked by another program" in in_one_line(done, "SESSION_DATABASE_BUSY")
    assert len(model.bodies()) == 1
    holder.close()


@pytest.mark.parametrize("what", ["text", "other", "open"])
def test_a_database_that_is_not_ours_stops_the_start(
    space: Workspace, answering: Answering, database: Path, what: str
) -> None:
    model = answering(text("hi"))
    database.parent.mkdir(mode=0o700)
    if what == "other":
        other = sqlite3.connect(database)
        other.execute("PRAGMA user_version = 15")
        other.execute("PRAGMA application_id = 1146308688")
        other.execute("CREATE TABLE sessions (x)")
        other.close()
    else:
        database.write_text("mine" if what == "text" else "")
    database.chmod(0o644 if what == "open" else 0o600)
    before = database.read_bytes()

    done = space.run("run", "do it")

    assert (done.code, done.stdout) == (3, "")
    assert str(database) in done.stderr and "session-persistence-sqlite" in done.stderr
    assert "Traceback" not in done.stderr and model.bodies() == []
    assert [path.name for path in database.parent.iterdir()] == ["sessions.db"]
    assert database.read_bytes() == before


@pytest.mark.parametrize("words", [("list",), ("show", "last"), ("delete", "last", "--yes")])
def test_commands_tell_a_damaged_database_and_leave_it(
    space: Workspace, answering: Answering, database: Path, words: tuple[str, ...]
) -> None:
    answering(text("hi"))
    assert space.run("run", "do it").code == 0
    data = bytearray(database.read_bytes())
    data[4096 : 4096 * 3] = b"\xa5" * 8192
    database.write_bytes(data)
    with pytest.raises(PersistenceError):
        SqliteBackend(database).list()

    done = space.run("sessions", *words)

    assert done.code == 1 and done.stderr.startswith("dsh: ") and "Traceback" not in done.stderr
    assert str(database) in done.stderr
    assert database.read_bytes() == data
