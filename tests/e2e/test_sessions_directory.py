"""Session commands as processes: listing, forking, deleting, pruning and packing what real runs stored."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from dsh.testing.workspace import Finished, Workspace, log_rows
from tests.process import wait_until

SQLITE = """\
- id: session-persistence-jsonl
  disabled: true
- insert:
    - id: session-persistence-sqlite
      name: session-persistence-sqlite
      config: {path: !expr "home('sessions.db')", journalMode: delete}
"""


@pytest.fixture(params=["jsonl", "sqlite"])
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Workspace:
    """A home with two sessions of this directory; in either kind of storage."""
    made = Workspace(tmp_path)
    if request.param == "sqlite":
        (made.home / "dsh.patch.yml").write_text(SQLITE)
    for word in ("one", "two"):
        done = made.run("--profile", "demo", f"Run: echo {word}")
        assert (done.code, done.stdout) == (0, f"{word}\n\n"), done.stderr
    return made


def sessions(workspace: Workspace, *words: str) -> list[dict[str, object]]:
    done = workspace.run("sessions", "list", "--json", *words)
    assert (done.code, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["problems"] == []
    return list(found["sessions"])


def ids(workspace: Workspace, *words: str) -> list[str]:
    return [str(one["id"]) for one in sessions(workspace, *words)]


def in_order(done: Finished) -> Finished:
    assert (done.code, done.stderr) == (0, ""), done.stderr
    return done


def test_what_runs_stored_is_listed(workspace: Workspace) -> None:
    found = sessions(workspace)

    assert len(found) == 2
    assert {one["cwd"] for one in found} == {str(workspace.work)}
    assert all(isinstance(one["size"], int) and one["size"] > 0 for one in found)
    assert all(isinstance(one["modifiedAt"], int) for one in found)
    (workspace.work / "inner").mkdir()
    inner = Workspace(workspace.root)
    inner.work = workspace.work / "inner"
    assert ids(inner) == []
    assert len(ids(inner, "--all")) == 2


def test_a_fork_is_a_session_of_its_own(workspace: Workspace) -> None:
    mother = ids(workspace)[0]
    before = in_order(workspace.run("sessions", "inspect", mother, "--json")).stdout

    child = in_order(workspace.run("sessions", "fork", mother, "--at", "1")).stdout.strip()

    assert in_order(workspace.run("sessions", "inspect", mother, "--json")).stdout == before
    shown = json.loads(in_order(workspace.run("sessions", "inspect", child, "--json")).stdout)
    parent = json.loads(before)
    assert shown["header"]["parentSession"] == mother
    assert shown["header"]["seedLength"] == shown["events"] - 1
    assert shown["lastType"] == "session/end-seed"
    assert shown["messages"] == parent["messages"]
    in_order(workspace.run("sessions", "delete", mother, "--yes"))
    assert in_order(workspace.run("sessions", "inspect", child, "--json")).code == 0


def test_deleting_and_pruning_leave_nothing(workspace: Workspace) -> None:
    first, second = ids(workspace)

    refused = workspace.run("sessions", "delete", first)
    assert (refused.code, refused.stdout) == (2, "")
    assert "--yes" in refused.stderr
    assert ids(workspace) == [first, second]

    in_order(workspace.run("sessions", "delete", first[:20], "-y"))
    assert ids(workspace) == [second]

    time.sleep(0.002)  # what was written in this very millisecond is not older than nothing
    dry = in_order(workspace.run("sessions", "prune", "--older-than", "0m", "--dry-run"))
    assert second in dry.stdout
    in_order(workspace.run("sessions", "prune", "--older-than", "0m", "--yes"))
    assert ids(workspace, "--all") == []
    assert list(workspace.home.glob("sessions/*")) == []


def test_a_session_that_a_run_has_open_is_not_deleted(workspace: Workspace) -> None:
    process = workspace.start("--profile", "demo", "Run: echo started; touch started; sleep 60")
    try:
        wait_until((workspace.work / "started").exists, process)
        running = ids(workspace)[0]

        refused = workspace.run("sessions", "delete", running, "--yes")
        pruned = workspace.run("sessions", "prune", "--older-than", "0m", "--all", "--yes")

        assert refused.code == 1 and f"process {process.pid}" in refused.stderr
        assert pruned.code == 1 and f"process {process.pid}" in pruned.stderr
        assert ids(workspace) == [running]
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    shown = json.loads(in_order(workspace.run("sessions", "inspect", running, "--json")).stdout)
    assert shown["last"]["type"] == "turn/end"


def test_the_root_can_be_said_instead(workspace: Workspace) -> None:
    database = workspace.home / "sessions.db"
    root = database if database.exists() else workspace.home / "sessions"
    expected = ids(workspace)
    other = Workspace(workspace.root / "other")

    assert ids(other, "--all") == []
    assert ids(other, "--all", "--root", str(root)) == expected
    inspected = other.run("sessions", "inspect", expected[0][:18], "--root", str(root))
    assert inspected.code == 0 and expected[0] in inspected.stdout
    assert list(other.home.iterdir()) == []


def test_packing_tells_what_it_saved_or_that_there_is_nothing_to_do(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.run("--profile", "demo", "Run: seq 2000")
    before = log_rows(workspace.logs()[0])
    size = workspace.logs()[0].stat().st_size

    done = in_order(workspace.run("sessions", "pack"))

    assert "saved" in done.stdout
    assert workspace.logs()[0].stat().st_size < size
    assert [row.get("seq") for row in log_rows(workspace.logs()[0]) if "seq" in row] == [
        row.get("seq") for row in before if "seq" in row
    ]


def test_a_killed_fork_leaves_nothing_visible_and_the_retry_works(tmp_path: Path) -> None:
    """RF-05: kill -9 at any moment of it."""
    workspace = Workspace(tmp_path)
    workspace.run("--profile", "demo", "Run: echo hello")
    (mother,) = ids(workspace)
    kept = workspace.logs()[0].read_bytes()

    for delay_ms in range(40, 160, 15):
        process = workspace.start("sessions", "fork", mother)
        time.sleep(delay_ms / 1000)
        process.kill()
        process.communicate(timeout=30)

    forks = [one for one in sessions(workspace) if one["parentSession"] == mother]
    for one in forks:  # those that were done before the kill: whole
        in_order(workspace.run("sessions", "inspect", str(one["id"])))
    assert workspace.run("sessions", "fork", mother).code == 0
    assert len(ids(workspace)) == len(forks) + 2
    (log,) = (path for path in workspace.logs() if path.parent.name == mother)
    assert log.read_bytes() == kept


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.run("--profile", "demo", "Run: echo hello")
    read, write = os.pipe()
    os.close(read)

    process = workspace.start("sessions", "list", stdout=write)
    os.close(write)
    _, err = process.communicate(timeout=30)

    assert (process.returncode, err) == (141, b"")


PROBE = """
import os, sys
from dsh.cli.main import main
code = main(sys.argv[1:])
os.write(2, " ".join(sorted(sys.modules)).encode())
sys.exit(code)
"""
HEAVY = {"asyncio", "httpx", "sqlite3", "ssl", "socket", "concurrent", "dsh.kernel", "rich"}


@pytest.mark.parametrize(
    "words", [("list", "--all"), ("list", "--json"), ("fork", "last"), ("delete", "last", "-y"), ("pack",)]
)
def test_a_command_loads_neither_kernel_nor_event_loop_nor_plugins(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    workspace = Workspace(tmp_path)
    workspace.run("--profile", "demo", "Run: echo hello")

    probing = Workspace(tmp_path, program=(sys.executable, "-P", "-c", PROBE))
    done = probing.run("sessions", *words)

    assert done.code == 0
    loaded = set(done.stderr.split())
    assert HEAVY & loaded == set()
    assert not [name for name in loaded if name.startswith("dsh.plugins")]
