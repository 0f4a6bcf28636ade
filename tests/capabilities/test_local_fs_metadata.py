"""A file that is replaced stays what it was: its mode, owner, attributes and access list."""

import os
import stat
import struct
from pathlib import Path

import pytest

from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from tests.aio import aio


async def write(folder: Path, name: str, content: str) -> None:
    fs = LocalFileSystem(FsConfig(cwd=str(folder)))
    await fs.write_text(await fs.resolve(name), content)


def access_list(*entries: tuple[int, int, int]) -> bytes:
    """An access list as the kernel keeps it, of (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *one) for one in entries)


NO_ID = 0xFFFFFFFF
ACCESS_LIST = access_list(
    (1, 6, NO_ID),  # owner
    (2, 6, 1234),  # one user by number
    (4, 4, NO_ID),  # group
    (16, 6, NO_ID),  # mask
    (32, 0, NO_ID),  # everybody else
)


def give(path: Path, name: str, value: bytes) -> None:
    """Set an extended attribute; skips where the file system has none."""
    if not hasattr(os, "setxattr"):
        pytest.skip("extended attributes are Linux's")
    try:
        os.setxattr(path, name, value)
    except OSError as error:
        pytest.skip(f"no {name} on the file system of the temporary folder: {error}")


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o444, 0o600, 0o4755])
@aio
async def test_a_replaced_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "run.sh"
    path.write_text("old")
    path.chmod(mode)

    await write(tmp_path, "run.sh", "new")

    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert path.read_text() == "new"


@aio
async def test_a_replaced_file_keeps_its_owner_where_allowed(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    if os.geteuid() == 0:
        os.chown(path, 12345, 23456)
    before = path.stat()

    await write(tmp_path, "f", "new")

    after = path.stat()
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)


@pytest.mark.parametrize("name", ["user.origin", "system.posix_acl_access"])
@aio
async def test_a_replaced_file_keeps_its_attributes_and_its_access_list(tmp_path: Path, name: str) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    value = b"somewhere" if name.startswith("user.") else ACCESS_LIST
    give(path, name, value)

    await write(tmp_path, "f", "new")

    assert os.getxattr(path, name) == value


@aio
async def test_a_replaced_file_gets_no_access_list_from_its_directory(tmp_path: Path) -> None:
    """What a directory hands down to new files must not let others into an old one."""
    path = tmp_path / "f"
    path.write_text("old")
    path.chmod(0o660)
    give(tmp_path, "system.posix_acl_default", ACCESS_LIST)

    await write(tmp_path, "f", "new")
    await write(tmp_path, "really new", "new")

    assert os.listxattr(path) == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert os.getxattr(tmp_path / "really new", "system.posix_acl_access") == ACCESS_LIST
