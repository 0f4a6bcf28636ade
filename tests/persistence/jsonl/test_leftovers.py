"""What killed processes leave behind does not stay for good, and nothing else goes with it."""

import os
import time
from pathlib import Path

import pytest

from dsh.persistence.fork import fork_stored
from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.lock import OwnerLock
from dsh.persistence.projections import sidecar_path
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from tests.persistence.faults import FaultyFiles, Killed

HEAD = SessionHeader(id="demo.1", created_at=1, cwd="/srv/app", delegation_depth=0)
EVENTS = [SessionEvent("turn/start", 0, 1, {"turn": 1})]


def later() -> int:
    return time.time_ns() // 1_000_000 + 1000


def stored(root: Path) -> Path:
    backend = JsonlBackend(root)
    backend.append(HEAD, EVENTS)
    backend.close()
    return backend.locate(HEAD)


def test_whoever_opens_a_log_removes_its_unfinished_files(tmp_path: Path) -> None:
    log = stored(tmp_path)
    gone = [log.with_name(f"{log.name}.0123.tmp"), log.with_name(f".{sidecar_path(log).name}.01.tmp")]
    kept = [log.with_name("mine.tmp"), log.with_name(f"{log.name}.cut-5-01"), sidecar_path(log)]
    for path in (*gone, *kept):
        path.write_text("x")

    JsonlBackend(tmp_path).load("demo.1")
    assert all(path.exists() for path in gone), "who only reads changes nothing"
    backend = JsonlBackend(tmp_path)
    backend.open("demo.1")
    backend.close()

    assert not any(path.exists() for path in gone) and all(path.exists() for path in kept)


def test_a_first_write_that_was_killed_anywhere_is_swept_away(tmp_path: Path) -> None:
    for call in range(30):
        root = tmp_path / str(call)
        log = stored(root)
        files = FaultyFiles(call, kill=True)
        try:
            fork_stored(JsonlBackend(root, files=files), "demo.1", child_id="child")
        except Killed:
            pass
        else:
            return
        backend = JsonlBackend(root)
        if backend.find("child") is None:
            folder = log.parent.with_name("child")
            was_there = (folder / "owner.lock").exists()
            assert backend.sweep(0) == 0 and backend.sweep(later()) == was_there
            assert not was_there or not folder.exists()
        assert log.exists() and backend.ids()[-1] == "demo.1"
    pytest.fail("never came to an end")


def test_nothing_goes_that_is_not_of_a_sessions_own_making_or_open(tmp_path: Path) -> None:
    log = stored(tmp_path)
    project = log.parent.parent
    kinds = {"empty": [], "foreign": ["owner.lock", "notes.txt"], "unlocked": ["session.jsonl.1.tmp"]}
    for name, files in {**kinds, "open": ["owner.lock"]}.items():
        (project / name).mkdir()
        for file in files:
            (project / name / file).write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "owner.lock").write_text("")
    (project / "link").symlink_to(tmp_path / "elsewhere")
    held = OwnerLock.acquire(project / "open")
    before = sorted(str(path) for path in tmp_path.rglob("*"))

    assert JsonlBackend(tmp_path).sweep(later()) == 0

    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    held.release()
    assert JsonlBackend(tmp_path).sweep(later()) == 1
    assert not (project / "open").exists()


def test_the_project_goes_with_its_last_folder(tmp_path: Path) -> None:
    folder = tmp_path / "--srv-app--" / "x"
    folder.mkdir(parents=True)
    (folder / "owner.lock").write_text("")
    os.utime(folder, (5, 5))

    assert JsonlBackend(tmp_path).sweep(4000) == 0
    assert JsonlBackend(tmp_path).sweep(6000) == 1
    assert list(tmp_path.iterdir()) == []
