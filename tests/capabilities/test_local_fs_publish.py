"""Publication: all of the new content or none of it, durable, and nothing left beside it."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dsh.capabilities.fs import FsError
from dsh.capabilities.local_fs import publish as publishing
from dsh.capabilities.local_fs.path import version_of
from dsh.capabilities.local_fs.thread import Halt
from dsh.kernel import CancelToken


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    old = os.umask(mask)
    try:
        yield
    finally:
        os.umask(old)


def test_a_file_that_appears_while_creating_is_never_clobbered(tmp_path: Path) -> None:
    path = tmp_path / "f"

    def appear() -> None:
        path.write_text("theirs")

    with pytest.raises(publishing.AlreadyThere):
        publishing.publish(str(path), b"ours", old=None, halt=Halt(None, "write", "f"), confirm=appear)

    assert path.read_text() == "theirs"
    assert names(tmp_path) == {"f"}


def test_without_hard_links_a_file_is_still_created_exclusively(tmp_path: Path) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(1, "no links here")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", no_links)
        halt = Halt(None, "write", "f")
        made = publishing.publish(str(tmp_path / "f"), b"ours", old=None, halt=halt, confirm=lambda: None)
        with pytest.raises(publishing.AlreadyThere):
            publishing.publish(str(tmp_path / "f"), b"more", old=None, halt=halt, confirm=lambda: None)

    info = (tmp_path / "f").stat()
    assert made.startswith(f"{info.st_dev}:{info.st_ino}:4:")
    assert (tmp_path / "f").read_bytes() == b"ours"
    assert names(tmp_path) == {"f"}


def test_without_hard_links_a_failed_creation_is_taken_back(tmp_path: Path) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(1, "no links here")

    def full(fd: int, data: bytes) -> None:
        raise OSError(28, "full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", no_links)
        halt = Halt(None, "write", "f")
        with pytest.raises(OSError, match="full"):
            publishing.publish(
                str(tmp_path / "f"),
                b"ours",
                old=None,
                halt=halt,
                confirm=lambda: patch.setattr(publishing, "write_all", full),
            )

    assert names(tmp_path) == set()


def test_what_somebody_adds_right_after_publication_was_not_seen(tmp_path: Path) -> None:
    path, replace = tmp_path / "f", publishing.Staged.replace
    path.write_text("old")

    def published(staged: publishing.Staged) -> None:
        replace(staged)
        with path.open("a") as file:
            file.write(" and theirs")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing.Staged, "replace", published)
        halt = Halt(None, "write", "f")
        made = publishing.publish(str(path), b"new", old=path.stat(), halt=halt, confirm=lambda: None)

    assert path.read_text() == "new and theirs"
    assert made != version_of(path.stat())


def test_what_fails_before_publication_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")

    def crash() -> None:
        assert len(names(tmp_path)) == 2  # the staging directory lies beside it
        raise RuntimeError("the machine stops here")

    with pytest.raises(RuntimeError):
        publishing.publish(str(path), b"new", old=path.stat(), halt=Halt(None, "write", "f"), confirm=crash)

    assert path.read_text() == "old"
    assert names(tmp_path) == {"f"}


def test_the_staging_directory_is_private(tmp_path: Path) -> None:
    path, modes = tmp_path / "f", []

    def look() -> None:
        staging = next(p for p in tmp_path.iterdir() if p.name.endswith(".tmpdir"))
        modes.append((stat.S_IMODE(staging.stat().st_mode), staging.name.startswith(".f.")))

    for mask in (0, 0o277):
        with umask(mask):
            publishing.publish(str(path), b"new", old=None, halt=Halt(None, "write", "f"), confirm=look)
        path.unlink()

    assert modes == [(0o700, True)] * 2


def test_content_is_synced_before_it_is_published_and_its_directory_afterwards(tmp_path: Path) -> None:
    """What is there after a power cut is the old file or all of the new one."""
    path, steps = tmp_path / "f", []
    path.write_text("old")
    sync, replace = os.fsync, publishing.Staged.replace

    def synced(fd: int) -> None:
        steps.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else os.pread(fd, 9, 0).decode())
        sync(fd)

    def published(staged: publishing.Staged) -> None:
        replace(staged)
        steps.append("published")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", synced)
        patch.setattr(publishing.Staged, "replace", published)
        publishing.publish(
            str(path), b"new", old=path.stat(), halt=Halt(None, "write", "f"), confirm=lambda: None
        )

    assert steps == ["new", "published", "directory"]


def test_a_folder_that_somebody_else_makes_first_is_used(tmp_path: Path) -> None:
    make = os.mkdir

    def slower(name: str, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        if name == "sub":
            make(name, mode, dir_fd=dir_fd)
        make(name, mode, dir_fd=dir_fd)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "mkdir", slower)
        path = tmp_path / "sub" / "f"
        publishing.publish(str(path), b"new", old=None, halt=Halt(None, "write", "f"), confirm=lambda: None)

    assert path.read_text() == "new"


def test_a_signal_cancelled_before_publication_changes_nothing(tmp_path: Path) -> None:
    signal = CancelToken()
    signal.cancel("stop")

    with pytest.raises(FsError, match="cancelled"):
        publishing.publish(
            str(tmp_path / "f"), b"x", old=None, halt=Halt(signal, "write", "f"), confirm=lambda: None
        )

    assert names(tmp_path) == set()
