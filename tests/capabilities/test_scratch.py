"""The temporary folder of a process: whose it is, what outlives what, what another process sweeps."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsh.capabilities import scratch
from tests.nobody import as_nobody
from tests.process import wait_until

HOLD = """
import sys, time
from dsh.capabilities import scratch
print(scratch.session_folder("s"), flush=True)
if sys.argv[1] == "hold":
    time.sleep(120)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A temporary folder of the test's own, for this process and those that it starts."""
    place = tmp_path / "temp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(scratch, "_folder", None)
    yield place
    scratch.remove()


def other(what: str) -> "tuple[subprocess.Popen[str], Path]":
    """Another process with a folder for a session, and that folder."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, what], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def end(process: "subprocess.Popen[str]", number: int = signal.SIGKILL) -> None:
    process.send_signal(number)
    process.communicate()


def test_each_session_has_one_folder_that_nobody_else_may_enter(own_folder: Path) -> None:
    one, again, two = (scratch.session_folder(name) for name in ("a", "a", "../b\udcff"))

    assert one == again != two
    assert one.parent == two.parent == scratch.process_folder()
    for folder in (one, two, scratch.process_folder(), scratch.shared_folder("spill")):
        assert folder.stat().st_mode & 0o777 == 0o700
        assert folder.resolve() == folder and folder.is_relative_to(own_folder.resolve())
    assert scratch.shared_folder("spill").parent == scratch.shared_root()


def test_a_session_that_is_dropped_leaves_the_others() -> None:
    kept, gone = scratch.session_folder("kept"), scratch.session_folder("gone")
    (gone / "x").mkdir()
    (gone / "x" / "y").write_text("z")

    scratch.drop_session("gone")

    assert kept.is_dir() and not gone.exists()
    scratch.drop_session("never")


def test_the_end_of_the_program_removes_all_of_it() -> None:
    process, folder = other("leave")
    process.communicate()

    assert not folder.parent.exists()


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_a_living_one_has_is_not() -> None:
    killed, left = other("hold")
    living, held = other("hold")
    end(killed)
    (left / "file").write_text("x")

    scratch.process_folder()

    assert not left.parent.exists()
    assert held.is_dir()
    end(living)


def test_folders_of_other_kinds_are_left_alone(own_folder: Path) -> None:
    elsewhere = own_folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "x").write_text("x")
    (own_folder / f"{scratch.PREFIX}link").symlink_to(elsewhere)
    (own_folder / f"{scratch.PREFIX}file").write_text("x")
    (own_folder / "dsh-other").mkdir()

    scratch.process_folder()

    assert (elsewhere / "x").exists() and (own_folder / "dsh-other").is_dir()
    assert (own_folder / f"{scratch.PREFIX}file").exists()


def test_a_folder_that_vanishes_is_made_anew() -> None:
    first = scratch.process_folder()
    for path in sorted(first.rglob("*"), reverse=True):
        path.rmdir()
    first.rmdir()

    assert scratch.session_folder("s").is_dir() and scratch.process_folder() != first


def test_a_folder_that_is_swept_before_it_is_locked_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    make = tempfile.mkdtemp

    def swept_once(*args: str | None, **options: str | None) -> str:
        made.append(make(*args, **options))
        if len(made) == 1:
            Path(made[0]).rmdir()
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", swept_once)

    assert scratch.process_folder().is_dir() and len(made) == 2


def test_a_forked_child_has_its_own_and_leaves_its_parents(own_folder: Path) -> None:
    mine = scratch.process_folder()
    child = os.fork()
    if child == 0:
        scratch.remove()
        is_right = mine.is_dir() and scratch.process_folder() != mine
        scratch.remove()
        os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    assert mine.is_dir()
    assert [path for path in own_folder.iterdir() if path != mine] == []


def test_many_processes_at_once_keep_their_folders() -> None:
    started = [other("hold") for _ in range(6)]

    assert all(folder.is_dir() for _, folder in started)
    for process, _ in started:
        end(process)
    wait_until(lambda: all(process.poll() is not None for process, _ in started))


@as_nobody
def test_where_temporary_files_lie_need_not_be_listable() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", place)
        Path(place).chmod(0o300)
        try:
            assert scratch.session_folder("s").is_relative_to(place)
            scratch.remove()
        finally:
            Path(place).chmod(0o700)
