"""What the system forbids has a code, and leaves the bytes as they were and nothing beside them."""

import asyncio
import concurrent.futures.thread  # noqa: F401  asyncio imports it late, when the child may no longer read it
import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from dsh.capabilities.fs import FsEditRequest, FsError
from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from tests.nobody import NOBODY, reachable

GROUP = 54321
"""A group that the unprivileged user is in as well, where the tests run with privileges."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of the unprivileged user, outside pytest's private ones."""
    with tempfile.TemporaryDirectory(dir=reachable()) as name:
        path = Path(name)
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
        yield path
        path.chmod(0o700)


def code_of(folder: Path, act: Callable[[LocalFileSystem], Awaitable[object]]) -> str:
    """The code of what `act` raises, run without privileges in a forked child."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            if os.geteuid() == 0:
                os.setgroups([GROUP])
                os.setegid(NOBODY)
                os.seteuid(NOBODY)
            os.write(writing, _run(folder, act).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    assert os.waitpid(child, 0)[1] == 0
    return text


def _run(folder: Path, act: Callable[[LocalFileSystem], Awaitable[object]]) -> str:
    async def attempt() -> str:
        try:
            await act(LocalFileSystem(FsConfig(cwd=str(folder))))
        except FsError as error:
            return error.code
        return "done"

    return asyncio.run(attempt())


async def write(fs: LocalFileSystem, path: str) -> None:
    await fs.write_text(await fs.resolve(path), "new")


async def edit(fs: LocalFileSystem, path: str) -> None:
    await fs.edit_text(await fs.resolve(path), FsEditRequest("old", "new"))


@pytest.mark.parametrize("change", [write, edit])
def test_a_writable_file_in_a_read_only_directory(
    folder: Path, change: Callable[[LocalFileSystem, str], Awaitable[None]]
) -> None:
    (folder / "f").write_text("old")
    (folder / "f").chmod(0o666)
    folder.chmod(0o555)

    assert code_of(folder, lambda fs: change(fs, "f")) == "FS_PERMISSION_DENIED"

    assert (folder / "f").read_text() == "old"
    assert [path.name for path in folder.iterdir()] == ["f"]


def test_a_new_file_in_a_read_only_directory(folder: Path) -> None:
    folder.chmod(0o555)

    assert code_of(folder, lambda fs: write(fs, "f")) == "FS_PERMISSION_DENIED"
    assert code_of(folder, lambda fs: write(fs, "sub/f")) == "FS_PERMISSION_DENIED"

    assert list(folder.iterdir()) == []


def test_an_unreadable_file(folder: Path) -> None:
    (folder / "f").write_text("old")
    (folder / "f").chmod(0)

    async def read(fs: LocalFileSystem) -> None:
        await fs.read_text(await fs.resolve("f"))

    assert code_of(folder, read) == "FS_PERMISSION_DENIED"
    assert code_of(folder, lambda fs: edit(fs, "f")) == "FS_PERMISSION_DENIED"
    assert code_of(folder, lambda fs: write(fs, "f")) == "done"  # its directory lets it be replaced
    (folder / "f").chmod(0o600)
    assert (folder / "f").read_text() == "new"


def test_a_directory_that_may_not_be_searched(folder: Path) -> None:
    (folder / "d").mkdir()
    (folder / "d" / "f").write_text("old")
    (folder / "d").chmod(0)

    assert code_of(folder, lambda fs: fs.resolve("d/f")) == "FS_PERMISSION_DENIED"
    assert code_of(folder, lambda fs: write(fs, "d/f")) == "FS_PERMISSION_DENIED"


def test_a_file_of_somebody_else_keeps_group_and_mode_but_no_privileges(folder: Path) -> None:
    if os.geteuid() != 0:
        (folder / "f").write_text("old")
        (folder / "f").chmod(0o750)
    else:
        folder.chmod(0o777)
        (folder / "f").write_text("old")
        os.chown(folder / "f", 0, GROUP)
        (folder / "f").chmod(0o6755)

    assert code_of(folder, lambda fs: write(fs, "f")) == "done"

    assert (folder / "f").read_text() == "new"
    info = (folder / "f").stat()
    assert info.st_mode & 0o7777 == (0o755 if os.geteuid() == 0 else 0o750)
    assert os.geteuid() != 0 or info.st_gid == GROUP
