"""Writes and edits while everything around them goes wrong: failing calls, others at work, cancellation."""

import contextlib
import errno
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.fs import (
    FsEditIntent,
    FsEditOutcome,
    FsEditRequest,
    FsError,
    FsTarget,
    FsWriteOutcome,
)
from dsh.capabilities.local_fs import publish as publishing
from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from dsh.capabilities.local_fs.thread import Halt
from dsh.kernel import CancelToken
from tests.aio import aio

Outcome = FsWriteOutcome | FsEditOutcome
Change = Callable[[LocalFileSystem, FsTarget, CancelToken | None], Awaitable[Outcome]]
OLD, NEW = b"old text\r\n", b"new text\r\n"


async def write(fs: LocalFileSystem, target: FsTarget, signal: CancelToken | None = None) -> Outcome:
    return await fs.write_text(target, NEW.decode(), signal=signal)


async def edit(fs: LocalFileSystem, target: FsTarget, signal: CancelToken | None = None) -> Outcome:
    return await fs.edit_text(target, FsEditRequest("old", "new"), signal=signal)


changes = pytest.mark.parametrize("change", [write, edit])


def local(folder: Path) -> LocalFileSystem:
    return LocalFileSystem(FsConfig(cwd=str(folder)))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# -- calls of the system that fail ------------------------------------------------------------------

CALLS = ("open", "mkdir", "write", "fsync", "fchmod", "rename", "lstat", "stat", "fstat", "read")


@contextlib.contextmanager
def failing(call: str, at: int, number: int) -> Iterator[list[int]]:
    """The `at`-th use of an `os` function fails; the list has one entry once it has."""
    real, used, failed = getattr(os, call), [0], []

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        used[0] += 1
        if used[0] == at:
            failed.append(at)
            raise OSError(number, os.strerror(number))
        return real(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, call, wrapper)
        yield failed


@changes
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EACCES])
@aio
async def test_a_call_that_fails_leaves_the_whole_old_or_the_whole_new_file(
    tmp_path: Path, change: Change, call: str, number: int
) -> None:
    fs = local(tmp_path)
    for at in range(1, 40):
        (tmp_path / "f").write_bytes(OLD)
        target = await fs.resolve("f")
        error: FsError | None = None
        with failing(call, at, number) as failed:
            try:
                await change(fs, target, None)
            except FsError as raised:
                error = raised
        assert names(tmp_path) == {"f"}, at
        content = (tmp_path / "f").read_bytes()
        assert content in (OLD, NEW), at
        if error is None:
            assert content == NEW, at
        if not failed:
            assert error is None
            return
    raise AssertionError(f"{call} is used more often than this test goes")


# -- cancellation -----------------------------------------------------------------------------------


@changes
@aio
async def test_cancelled_at_any_moment_it_is_all_or_nothing(tmp_path: Path, change: Change) -> None:
    fs, real = local(tmp_path), Halt.check
    for at in range(1, 40):
        (tmp_path / "f").write_bytes(OLD)
        target, signal = await fs.resolve("f"), CancelToken()
        count = [0]

        def check(self: Halt, count: list[int] = count, at: int = at, signal: CancelToken = signal) -> None:
            count[0] += 1
            if count[0] == at:
                signal.cancel("stop")
            real(self)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Halt, "check", check)
            try:
                await change(fs, target, signal)
            except FsError as error:
                assert error.code == "FS_ABORTED"
                assert (tmp_path / "f").read_bytes() == OLD
            else:
                assert (tmp_path / "f").read_bytes() == NEW
        assert names(tmp_path) == {"f"}
        if count[0] < at:
            assert at > 3
            return
    raise AssertionError("it asks more often than this test goes")


# -- others at work ---------------------------------------------------------------------------------


def test_a_folder_that_becomes_a_link_on_the_way_leads_nowhere(tmp_path: Path) -> None:
    """The path was judged when it was resolved; what it has become since is not followed."""
    inside, outside = tmp_path / "in", tmp_path / "out"
    (inside / "d").mkdir(parents=True)
    outside.mkdir()
    (outside / "f").write_bytes(OLD)
    path = str(inside / "d" / "f")
    (inside / "d").rmdir()
    (inside / "d").symlink_to(outside)

    for old in (None, (outside / "f").stat()):
        with pytest.raises(NotADirectoryError):
            publishing.publish(path, NEW, old=old, halt=Halt(None, "write", "f"), confirm=lambda: None)
    with pytest.raises(NotADirectoryError):
        publishing.open_folder(str(inside / "d" / "new"), make=True)

    assert names(outside) == {"f"}
    assert (outside / "f").read_bytes() == OLD


VANDAL = """
import os, random, shutil, sys
folder, outside = sys.argv[1:]
path, spare = os.path.join(folder, "d", "f"), os.path.join(folder, "d", "spare")
dice = random.Random(7)
def clear():
    try:
        os.unlink(path)
    except IsADirectoryError:
        shutil.rmtree(path, ignore_errors=True)
    except OSError:
        pass
print("ready", flush=True)
while True:
    shape = dice.choice(("text", "rename", "gone", "folder", "fifo", "link", "away"))
    try:
        if shape == "text":
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK)
            os.write(file, b"theirs old\\n")
            os.close(file)
        elif shape == "rename":
            with open(spare, "wb") as file:
                file.write(b"theirs old\\n")
            clear()
            os.rename(spare, path)
        elif shape == "gone":
            clear()
        elif shape == "folder":
            clear(); os.mkdir(path)
        elif shape == "fifo":
            clear(); os.mkfifo(path)
        elif shape == "link":
            clear(); os.symlink(os.path.join(outside, "f"), path)
        else:
            os.rename(os.path.join(folder, "d"), os.path.join(folder, "e"))
            os.symlink(outside, os.path.join(folder, "d"))
            os.unlink(os.path.join(folder, "d"))
            os.rename(os.path.join(folder, "e"), os.path.join(folder, "d"))
    except OSError:
        pass
"""


@aio
async def test_whatever_another_process_makes_of_the_file_nothing_else_is_touched(tmp_path: Path) -> None:
    """No link that it puts in the way is followed to what lies elsewhere."""
    folder, outside = tmp_path / "ws", tmp_path / "outside"
    (folder / "d").mkdir(parents=True)
    outside.mkdir()
    (outside / "f").write_bytes(b"precious old\n")
    fs = local(folder)
    target = FsTarget(str(folder.resolve() / "d" / "f"), str(folder / "d" / "f"))
    vandal = subprocess.Popen(
        [sys.executable, "-S", "-c", VANDAL, str(folder), str(outside)], stdout=subprocess.PIPE
    )
    codes: set[str] = set()
    try:
        assert vandal.stdout is not None
        assert vandal.stdout.readline() == b"ready\n"
        for turn in range(1500):
            try:
                if turn % 2:
                    await fs.write_text(target, f"ours old {turn}\n")
                else:
                    await fs.edit_text(target, FsEditRequest("old", "new"))
            except FsError as error:
                codes.add(error.code)
    finally:
        vandal.kill()
        vandal.communicate()

    assert names(outside) == {"f"}
    assert (outside / "f").read_bytes() == b"precious old\n"
    left = {path.name for path in folder.rglob("*")} - {"d", "e", "f", "spare"}
    assert not [name for name in left if name.endswith(".tmpdir")]
    assert codes <= {
        "FS_STALE_VERSION", "FS_NOT_REGULAR_FILE", "FS_NOT_FOUND", "FS_EDIT_NOT_FOUND", "FS_IO_ERROR",
        "FS_PERMISSION_DENIED",
    }  # fmt: skip


APPENDER = """
import os, sys
path, spare = sys.argv[1], sys.argv[1] + ".theirs"
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    with open(spare, "w") as file:
        file.write(f"theirs {number}\\n")
    os.rename(spare, path)
"""


@aio
async def test_only_the_version_that_was_seen_is_ever_edited(tmp_path: Path) -> None:
    """An edit that succeeds says what it has replaced, and that is what had been read before it.

    Which number is left at the end is chance: what is renamed to the name between the last look and the move
    is not noticed.
    """
    path = tmp_path / "f"
    path.write_text("theirs -1\n")
    fs = local(tmp_path)
    other = subprocess.Popen(
        [sys.executable, "-S", "-c", APPENDER, str(path), "1500"], stdout=subprocess.PIPE
    )
    won = stale = 0
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"ready\n"
        while other.poll() is None:
            target = await fs.resolve("f")
            before = await fs.stat(target)
            text = await fs.read_text(target)
            after = await fs.stat(target)
            if before is None or after is None or before.version != after.version or "theirs" not in text:
                continue
            try:
                outcome = await fs.edit_text(
                    target, FsEditRequest("theirs", "ours"), expected=FsEditIntent(before.version)
                )
            except FsError as error:
                assert error.code == "FS_STALE_VERSION"
                stale += 1
            else:
                assert outcome.before == text
                won += 1
    finally:
        other.kill()
        other.communicate()

    assert won + stale > 0
    assert names(tmp_path) <= {"f", "f.theirs"}
    assert re.fullmatch(r"(theirs|ours) \d+\n", path.read_text())


# -- a disk that is really full ----------------------------------------------------------------------


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 256 KiB of its own."""
    folder = Path(tempfile.mkdtemp())
    try:
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)],
            capture_output=True,
            check=False,
        )
        if done.returncode != 0:
            pytest.skip(f"a small file system cannot be mounted here: {done.stderr.decode().strip()}")
        try:
            yield folder
        finally:
            subprocess.run(["umount", "-l", str(folder)], check=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no program mount")
@aio
async def test_a_full_file_system_keeps_the_old_file(small_disk: Path) -> None:
    fs = local(small_disk)
    (small_disk / "f").write_bytes(b"old" * 10_000)
    (small_disk / "linked").write_bytes(b"old" * 10_000)
    (small_disk / "other").hardlink_to(small_disk / "linked")
    for name in ("f", "linked", "new"):
        target = await fs.resolve(name)
        with pytest.raises(FsError) as caught:
            await fs.write_text(target, "n" * 250_000)
        assert caught.value.code == "FS_IO_ERROR"
        assert "ENOSPC" in caught.value.message

    assert names(small_disk) == {"f", "linked", "other"}
    assert (small_disk / "f").read_bytes() == (small_disk / "linked").read_bytes() == b"old" * 10_000
