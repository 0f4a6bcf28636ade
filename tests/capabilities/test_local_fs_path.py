"""One identity for every spelling of a file; every failure to find one has a code."""

import asyncio
import errno
import os
from pathlib import Path

import pytest

from dsh.capabilities.fs import FsError, FsTarget
from dsh.capabilities.local_fs import listing
from dsh.capabilities.local_fs.error import from_os
from dsh.capabilities.local_fs.path import locate
from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from dsh.capabilities.local_fs.thread import Halt
from dsh.kernel import CancelToken
from tests.aio import aio


def code_of(path: str, cwd: str = "/") -> str:
    with pytest.raises(FsError) as caught:
        locate(path, cwd)
    return caught.value.code


def test_aliases_of_a_file_share_a_key(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "d")
    (tmp_path / "flink").symlink_to("d/f")
    cwd = str(tmp_path)

    keys = {locate(p, cwd).target_key for p in ("d/f", "link/f", "flink", "d/../d/./f", f"{cwd}//d/f")}

    assert keys == {os.path.realpath(tmp_path / "d" / "f")}


def test_two_slashes_at_the_start_are_one(tmp_path: Path) -> None:
    assert locate(f"//{tmp_path}", "/") == locate(str(tmp_path), "/")


def test_the_display_path_keeps_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")

    assert locate("link/../x", str(tmp_path)).display_path == str(tmp_path / "x")
    assert locate("link/hosts", str(tmp_path)).display_path == str(tmp_path / "link" / "hosts")


def test_a_file_below_a_linked_directory_keeps_its_key_when_it_is_created(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "link").symlink_to("d")
    before = locate("link/new/deep.txt", str(tmp_path))

    (tmp_path / "d" / "new").mkdir()
    (tmp_path / "d" / "new" / "deep.txt").write_text("x")

    assert locate("link/new/deep.txt", str(tmp_path)).target_key == before.target_key


def test_a_dangling_link_is_its_own_key(tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to("nowhere/at/all")

    assert locate("l", str(tmp_path)).target_key == str(tmp_path.resolve() / "l")


def test_a_tilde_is_an_ordinary_name(tmp_path: Path) -> None:
    assert locate("~/x", str(tmp_path)).display_path == f"{tmp_path}/~/x"


def test_what_cannot_exist_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    cwd = str(tmp_path)

    assert code_of("file/child", cwd) == "FS_NOT_FOUND"
    assert code_of("file/child/deeper", cwd) == "FS_NOT_FOUND"
    assert code_of("") == code_of("  \n") == "FS_NOT_FOUND"
    assert code_of("a\0b") == "FS_NOT_FOUND"
    assert code_of("n" * 300, cwd) == "FS_NOT_FOUND"
    assert code_of("half \ud800 pair") == "FS_NOT_FOUND"


def test_a_loop_of_links_has_a_code_and_no_raw_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")

    assert code_of("a", str(tmp_path)) == "FS_IO_ERROR"


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOENT, "FS_NOT_FOUND"),
        (errno.ENAMETOOLONG, "FS_NOT_FOUND"),
        (errno.EACCES, "FS_PERMISSION_DENIED"),
        (errno.EPERM, "FS_PERMISSION_DENIED"),
        (errno.ENXIO, "FS_NOT_REGULAR_FILE"),
        (errno.ENOSPC, "FS_IO_ERROR"),
        (errno.EROFS, "FS_IO_ERROR"),
        (0, "FS_IO_ERROR"),
    ],
)
def test_every_error_of_the_system_has_a_code(number: int, code: str) -> None:
    error = from_os(OSError(number, "x"), "write", "/f")

    assert error.code == code
    assert '"/f"' in error.message


def test_an_unmapped_error_is_named() -> None:
    assert from_os(OSError(errno.ENOSPC, ""), "write", "/f").message.endswith("(ENOSPC)")


@aio
async def test_stat_of_nothing_is_none(tmp_path: Path) -> None:
    fs = LocalFileSystem(FsConfig(cwd=str(tmp_path)))
    (tmp_path / "file").write_text("abc")

    assert await fs.stat(await fs.resolve("missing")) is None
    assert await fs.stat(FsTarget(str(tmp_path / "file" / "child"), "x")) is None
    found = await fs.stat(await fs.resolve("file"))
    assert found is not None
    assert (found.type, found.size) == ("file", 3)


@aio
async def test_lstat_sees_the_link_itself(tmp_path: Path) -> None:
    fs = LocalFileSystem(FsConfig(cwd=str(tmp_path)))
    (tmp_path / "l").symlink_to("nowhere")

    info = await fs.lstat("l")

    assert info is not None
    assert (info.type, info.size) == ("symlink", None)
    assert await fs.lstat("none") is None


@aio
async def test_the_version_changes_with_content_and_metadata(tmp_path: Path) -> None:
    fs = LocalFileSystem(FsConfig(cwd=str(tmp_path)))
    path = tmp_path / "f"
    path.write_text("abc")
    target = await fs.resolve("f")
    versions = []
    for change in (lambda: None, lambda: path.write_text("abd"), lambda: path.chmod(0o600)):
        await asyncio.sleep(0.01)  # times are as coarse as the clock tick
        change()
        info = await fs.stat(target)
        assert info is not None
        versions.append(info.version)

    assert len(set(versions)) == 3


@aio
async def test_urls_and_containment(tmp_path: Path) -> None:
    fs = LocalFileSystem(FsConfig(cwd=str(tmp_path)))
    parent, child = await fs.resolve("."), await fs.resolve("a b/ü")

    assert fs.contains(parent, child)
    assert fs.contains(parent, parent)
    assert not fs.contains(child, parent)
    assert not fs.contains(FsTarget("/a", "/a"), FsTarget("/ab", "/ab"))
    assert fs.contains(FsTarget("/", "/"), child)
    assert fs.file_url(child).endswith("/a%20b/%C3%BC")
    assert fs.process_path(child) == child.target_key


@aio
async def test_a_directory_lists_its_children_by_name(tmp_path: Path) -> None:
    fs = LocalFileSystem(FsConfig(cwd=str(tmp_path)))
    (tmp_path / "b").write_text("12")
    (tmp_path / "a").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "link").symlink_to("b")

    children = await fs.list_dir(await fs.resolve("."))

    assert [(c.name, c.type, c.size) for c in children] == [
        ("a", "directory", None),
        ("b", "file", 2),
        ("dangling", "other", None),
        ("link", "file", 2),
    ]
    assert children[3].target.target_key == children[1].target.target_key
    assert children[2].version is None


def test_a_listing_that_nobody_waits_for_stops_between_two_children(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).touch()
    signal, looked = CancelToken(), []

    def canonical(path: str) -> str:
        looked.append(path)
        signal.cancel("enough")
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "canonical", canonical)
        with pytest.raises(FsError) as caught:
            listing.list_children(FsTarget(str(tmp_path), "/shown"), Halt(signal, "list", "/shown"))

    assert caught.value.code == "FS_ABORTED"
    assert looked == [str(tmp_path / "a")]


@aio
async def test_listing_what_is_no_directory_has_its_code(tmp_path: Path) -> None:
    fs = LocalFileSystem(FsConfig(cwd=str(tmp_path)))
    (tmp_path / "f").write_text("")

    with pytest.raises(FsError) as caught:
        await fs.list_dir(await fs.resolve("f"))
    assert caught.value.code == "FS_NOT_DIRECTORY"
    with pytest.raises(FsError) as caught:
        await fs.list_dir(await fs.resolve("none"))
    assert caught.value.code == "FS_NOT_FOUND"
