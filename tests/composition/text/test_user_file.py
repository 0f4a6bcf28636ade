"""Files that belong to a person: written whole or not at all, by one writer at a time."""

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from dsh.composition.text.user_file import UserFileError, locked, replace


def test_the_file_and_missing_folders_are_for_their_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "a/b/settings.yaml"
    replace(path, b"x: 1\n")
    assert path.read_bytes() == b"x: 1\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in path.parents[:2]] == [0o700, 0o700]
    assert [one.name for one in path.parent.iterdir()] == ["settings.yaml"]


def test_a_mode_is_given_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        replace(tmp_path / "f", b"", mode=0o664)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o664


def test_a_link_is_replaced_itself(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"old")
    (tmp_path / "link").symlink_to("target")
    replace(tmp_path / "link", b"new")
    assert (tmp_path / "target").read_bytes() == b"old"
    assert not (tmp_path / "link").is_symlink()


def test_a_failed_write_leaves_no_sibling(tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f/inside").write_bytes(b"")
    with pytest.raises(UserFileError, match=r"failed to write .*/f: "):
        replace(tmp_path / "f", b"new")
    assert [one.name for one in tmp_path.iterdir()] == ["f"]


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(UserFileError, match=r"failed to write .*/f/g: "):
        replace(tmp_path / "f/g", b"new")
    with (
        pytest.raises(UserFileError, match=r"failed to open the lock .*/f/g\.lock: "),
        locked(tmp_path / "f/g", timeout_s=1),
    ):
        raise AssertionError("not reached")


def test_the_second_writer_waits_and_then_says_whose_the_lock_is(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    with locked(path, timeout_s=1):
        with pytest.raises(UserFileError) as caught, locked(path, timeout_s=0.05):
            raise AssertionError("not reached")
        assert caught.value.message == f"timed out waiting for the writer lock at {path}.lock"
        assert caught.value.hint == f"process {os.getpid()} is writing; try again when it is done"
    with locked(path, timeout_s=0):
        pass


def test_a_lock_goes_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "f"
    code = (
        "import os, sys; from pathlib import Path; from dsh.composition.text.user_file import locked\n"
        "with locked(Path(sys.argv[1]), timeout_s=1): os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], timeout=30).returncode == 9
    assert (tmp_path / "f.lock").exists()
    with locked(path, timeout_s=0):
        pass


def test_the_lock_file_is_there_while_the_lock_is_held_and_no_longer(tmp_path: Path) -> None:
    path, lock = tmp_path / "f", tmp_path / "f.lock"
    with locked(path, timeout_s=1):
        assert lock.read_text() == f"{os.getpid()}\n"
    assert not lock.exists()
    with pytest.raises(LookupError), locked(path, timeout_s=1):
        raise LookupError
    assert not lock.exists()


@pytest.mark.parametrize(
    ("pid", "age_s", "is_held"),
    [
        (os.getppid(), 0, True),
        (os.getppid(), 3_600, False),
        (2**22 + 5, 0, False),
        (10**18, 0, False),
        (0, 0, False),
    ],
)
def test_a_file_that_the_original_made_is_a_lock_while_its_process_lives(
    tmp_path: Path, pid: int, age_s: float, is_held: bool
) -> None:
    lock = tmp_path / "f.lock"
    lock.write_text(f"{pid}\n" if pid else "")
    made_s = lock.stat().st_mtime - age_s
    os.utime(lock, (made_s, made_s))
    if is_held:
        with (
            pytest.raises(UserFileError, match="timed out") as caught,
            locked(tmp_path / "f", timeout_s=0.05),
        ):
            raise AssertionError("not reached")
        assert caught.value.hint.startswith(f"process {pid} is writing")
        assert lock.exists()
    else:
        with locked(tmp_path / "f", timeout_s=0):
            pass
        assert not lock.exists()


def test_writers_that_read_and_write_under_the_lock_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "n"
    replace(path, b"0")

    def count() -> None:
        for _ in range(20):
            with locked(path, timeout_s=30):
                replace(path, b"%d" % (int(path.read_bytes()) + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_bytes() == b"80"
