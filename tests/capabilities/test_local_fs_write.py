"""Writes put exactly the given bytes in the place of the file, atomically, under the given condition."""

import asyncio
import os
import resource
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.fs import CreateIfAbsent, FsError, FsWriteIntent, FsWriteOutcome, ReplaceIfVersion
from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from dsh.capabilities.local_fs.publish import publish
from dsh.capabilities.local_fs.thread import Halt
from dsh.kernel import CancelToken, ValidationError, resolve_config
from tests.aio import aio


def files(tmp_path: Path, **config: int) -> LocalFileSystem:
    return LocalFileSystem(FsConfig(cwd=str(tmp_path), **config))


async def write(
    fs: LocalFileSystem, path: str, content: str, expected: FsWriteIntent | None = None
) -> FsWriteOutcome:
    return await fs.write_text(await fs.resolve(path), content, expected=expected)


async def version(fs: LocalFileSystem, path: str) -> str:
    info = await fs.stat(await fs.resolve(path))
    assert info is not None
    return info.version


async def refused(fs: LocalFileSystem, path: str, content: str, expected: FsWriteIntent | None = None) -> str:
    with pytest.raises(FsError) as caught:
        await write(fs, path, content, expected)
    return caught.value.code


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    old = os.umask(mask)
    try:
        yield
    finally:
        os.umask(old)


@pytest.mark.parametrize("content", ["a\r\nb\r\n", "a\nb\n", "no newline", "", "\ufeffbom", "\r", "🏷\u2028"])
@aio
async def test_exactly_the_given_bytes_are_stored(tmp_path: Path, content: str) -> None:
    await write(files(tmp_path), "new/dir/f", content)

    assert (tmp_path / "new/dir/f").read_bytes() == content.encode()
    assert names(tmp_path / "new/dir") == {"f"}


@aio
async def test_the_outcome_tells_both_texts_with_lf(tmp_path: Path) -> None:
    fs = files(tmp_path)
    created = await write(fs, "f", "a\r\nb\rc")
    assert (created.operation, created.before, created.after) == ("create", None, "a\nb\rc")

    updated = await write(fs, "f", "z")

    assert (updated.operation, updated.before, updated.after) == ("update", "a\nb\rc", "z")
    assert updated.version == await version(fs, "f")
    assert updated.note is None


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077, 0])
@aio
async def test_a_new_file_has_the_mode_of_the_umask(tmp_path: Path, mask: int) -> None:
    with umask(mask):
        await write(files(tmp_path), "d/f", "x")

    assert stat.S_IMODE((tmp_path / "d/f").stat().st_mode) == 0o666 & ~mask
    assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o777 & ~mask


@aio
async def test_a_link_stays_a_link_and_its_target_changes(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "sub" / "l").symlink_to("../real.txt")

    await write(files(tmp_path), "sub/l", "new")

    assert (tmp_path / "sub" / "l").is_symlink()
    assert (tmp_path / "real.txt").read_text() == "new"
    assert names(tmp_path / "sub") == {"l"}


@pytest.mark.parametrize("expected", [None, CreateIfAbsent()])
@aio
async def test_a_dangling_link_is_refused_and_stays(tmp_path: Path, expected: FsWriteIntent | None) -> None:
    (tmp_path / "l").symlink_to("nowhere")

    assert await refused(files(tmp_path), "l", "x", expected) == "FS_NOT_REGULAR_FILE"

    assert (tmp_path / "l").readlink() == Path("nowhere")
    assert names(tmp_path) == {"l"}


@aio
async def test_other_names_of_a_file_see_the_change_and_the_caller_is_told(tmp_path: Path) -> None:
    path, other = tmp_path / "f", tmp_path / "g"
    path.write_text("old and long")
    path.chmod(0o640)
    other.hardlink_to(path)

    outcome = await write(files(tmp_path), "f", "new")

    assert other.read_text() == "new"
    assert path.samefile(other)
    assert outcome.note is not None
    assert "not atomically" in outcome.note
    assert outcome.version == await version(files(tmp_path), "f")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert names(tmp_path) == {"f", "g"}


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """A full disk, as far as one process can have it: writing beyond `size` fails with EFBIG."""
    limits, compiles = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # it would be torn
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = compiles


@pytest.mark.parametrize("new_size", [9_000, 11_000])
@aio
async def test_a_failed_write_in_place_puts_the_old_bytes_back(tmp_path: Path, new_size: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"o" * 10_000)
    (tmp_path / "g").hardlink_to(path)

    with no_file_longer_than(4096):
        assert await refused(files(tmp_path), "f", "n" * new_size) == "FS_IO_ERROR"

    assert path.read_bytes() == b"o" * 10_000


@aio
async def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")

    with no_file_longer_than(4096):
        assert await refused(files(tmp_path), "f", "n" * 9000) == "FS_IO_ERROR"
        assert await refused(files(tmp_path), "g", "n" * 9000) == "FS_IO_ERROR"

    assert (tmp_path / "f").read_text() == "old"
    assert names(tmp_path) == {"f"}


@aio
async def test_an_unseen_file_is_not_overwritten_by_a_guarded_create(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")

    assert await refused(files(tmp_path), "f", "new", CreateIfAbsent()) == "FS_NOT_OBSERVED"
    assert (tmp_path / "f").read_text() == "old"


@aio
async def test_only_the_expected_version_is_replaced(tmp_path: Path) -> None:
    fs = files(tmp_path)
    (tmp_path / "f").write_text("old")
    seen = await version(fs, "f")
    await asyncio.sleep(0.01)
    (tmp_path / "f").write_text("OLD")

    assert await refused(fs, "f", "new", ReplaceIfVersion(seen)) == "FS_STALE_VERSION"
    assert await refused(fs, "none", "new", ReplaceIfVersion(seen)) == "FS_STALE_VERSION"
    assert (tmp_path / "f").read_text() == "OLD"
    assert names(tmp_path) == {"f"}


@aio
async def test_of_two_writes_over_one_version_exactly_one_wins(tmp_path: Path) -> None:
    fs = files(tmp_path)
    (tmp_path / "f").write_text("old")
    target, seen = await fs.resolve("f"), ReplaceIfVersion(await version(fs, "f"))

    results = await asyncio.gather(
        *(fs.write_text(target, text, expected=seen) for text in ("one", "two")), return_exceptions=True
    )

    assert [getattr(result, "code", "won") for result in results] == ["won", "FS_STALE_VERSION"]
    assert (tmp_path / "f").read_text() == "one"
    assert len(fs._locks) == 0


@aio
async def test_only_a_conditional_write_minds_what_happens_before_it_is_published(tmp_path: Path) -> None:
    fs, path = files(tmp_path), tmp_path / "f"
    path.write_text("old")
    seen = ReplaceIfVersion(await version(fs, "f"))

    def late(*args: Any, **more: Any) -> str:
        path.write_text("theirs")
        return publish(*args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsh.capabilities.local_fs.mutate.publish", late)
        assert await refused(fs, "f", "ours", seen) == "FS_STALE_VERSION"
        assert path.read_text() == "theirs"
        await write(fs, "f", "ours")

    assert path.read_text() == "ours"


@pytest.mark.parametrize(("kind", "code"), [("file", "FS_NOT_OBSERVED"), ("folder", "FS_NOT_REGULAR_FILE")])
@aio
async def test_what_is_created_by_others_meanwhile_is_named(tmp_path: Path, kind: str, code: str) -> None:
    fs, path = files(tmp_path), tmp_path / "f"

    def late(*args: Any, **more: Any) -> str:
        path.touch() if kind == "file" else path.mkdir()
        return publish(*args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsh.capabilities.local_fs.mutate.publish", late)
        assert await refused(fs, "f", "ours", CreateIfAbsent()) == code


@aio
async def test_an_old_text_that_changes_while_it_is_read_is_no_basis_for_a_diff(tmp_path: Path) -> None:
    fs = files(tmp_path)
    (tmp_path / "f").write_text("old text")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsh.capabilities.local_fs.mutate.read_up_to", lambda *_: b"old")
        outcome = await write(fs, "f", "new")

    assert outcome.before is None


@aio
async def test_unconditional_writes_of_one_file_run_in_order(tmp_path: Path) -> None:
    fs = files(tmp_path)
    target = await fs.resolve("f")

    await asyncio.gather(*(fs.write_text(target, str(number)) for number in range(20)))

    assert (tmp_path / "f").read_text() == "19"
    assert names(tmp_path) == {"f"}


@aio
async def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    await write(files(tmp_path), "ü" * 127, "x")

    assert names(tmp_path) == {"ü" * 127}


@aio
async def test_a_cancelled_signal_writes_nothing(tmp_path: Path) -> None:
    fs = files(tmp_path)
    signal = CancelToken()
    target = await fs.resolve("d/f")
    signal.cancel("stop")

    with pytest.raises(FsError) as caught:
        await fs.write_text(target, "x", signal=signal)

    assert caught.value.code == "FS_ABORTED"
    assert names(tmp_path) == set()


@aio
async def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    fs = files(tmp_path)
    (tmp_path / "d").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "lf").symlink_to("fifo")
    (tmp_path / "plain").write_text("")

    for name in ("d", "fifo", "lf", "/dev/null"):
        assert await refused(fs, name, "x") == "FS_NOT_REGULAR_FILE"
    assert await refused(fs, "plain/child", "x") == "FS_NOT_FOUND"
    assert await refused(fs, "n" * 300, "x") == "FS_NOT_FOUND"


@pytest.mark.parametrize("old", [b"late \0", b"caf\xe9", b"x" * 64])
@aio
async def test_the_old_text_is_left_out_of_the_outcome_where_it_is_not_to_be_had(
    tmp_path: Path, old: bytes
) -> None:
    (tmp_path / "f").write_bytes(old)

    outcome = await write(files(tmp_path, diff_basis_max_bytes=64), "f", "new")

    assert outcome.operation == "update"
    assert outcome.before is None


@aio
async def test_a_text_at_the_limit_of_the_diff_has_no_old_text(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")

    assert (await write(files(tmp_path, diff_basis_max_bytes=4), "f", "1234")).before is None
    assert (await write(files(tmp_path, diff_basis_max_bytes=5), "f", "12")).before == "1234"


@aio
async def test_half_surrogate_pairs_become_replacement_characters_and_are_counted(tmp_path: Path) -> None:
    outcome = await write(files(tmp_path), "f", "현\ud99c \ud83c\udff7")

    assert (tmp_path / "f").read_text() == "현\ufffd 🏷"
    assert outcome.note is not None
    assert outcome.note.startswith("1 characters")


@aio
async def test_a_task_that_is_cancelled_waits_for_its_file_work(tmp_path: Path) -> None:
    fs = files(tmp_path)
    target = await fs.resolve("f")
    entered, release = threading.Event(), threading.Event()
    told = []

    def slow(*args: object, halt: Halt, **kwargs: object) -> str:
        entered.set()
        release.wait(5)
        try:
            halt.check()
        except FsError as error:
            told.append(error.code)
        return "v"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsh.capabilities.local_fs.mutate.publish", slow)
        task = asyncio.create_task(fs.write_text(target, "x"))
        await asyncio.to_thread(entered.wait, 5)
        task.cancel()
        await asyncio.sleep(0.01)
        assert not task.done()
        assert len(fs._locks) == 1
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert len(fs._locks) == 0
    assert told == ["FS_ABORTED"]


def test_the_options_are_checked() -> None:
    for value in (0, -1, 2**53):
        with pytest.raises(ValidationError, match="diffBasisMaxBytes"):
            resolve_config(FsConfig, {"diffBasisMaxBytes": value})
