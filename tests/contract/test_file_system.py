"""What every file system row does alike: `fs-local` and `fs-sandbox` are one line of a patch apart."""

import asyncio
import os
from pathlib import Path
from types import ModuleType

import pytest

from dsh.capabilities.fs import (
    FS,
    CreateIfAbsent,
    FileSystem,
    FsEditIntent,
    FsEditRequest,
    FsError,
    ReplaceIfVersion,
)
from dsh.kernel import CancelToken, Context
from tests.aio import aio
from tests.contract.providers import FILE_SYSTEMS, provider

pytestmark = pytest.mark.parametrize("row", FILE_SYSTEMS)


def fs_of(ctx: Context) -> FileSystem:
    fs = ctx.get(FS)
    assert fs is not None
    return fs


@aio
async def test_aliases_of_a_file_share_a_key(row: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("x")
    (tmp_path / "link").symlink_to("real.txt")
    async with provider(row) as ctx:
        fs = fs_of(ctx)
        names = ("real.txt", "link", "sub/../real.txt", str(tmp_path / "real.txt"))

        assert len({(await fs.resolve(name, str(tmp_path))).target_key for name in names}) == 1


@aio
async def test_what_is_not_there_is_none_and_a_child_of_a_file_is_not_found(
    row: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    async with provider(row) as ctx:
        fs = fs_of(ctx)

        assert await fs.stat(await fs.resolve("absent", str(tmp_path))) is None
        with pytest.raises(FsError) as caught:
            await fs.resolve("file/child", str(tmp_path))
        assert caught.value.fs_code == "FS_NOT_FOUND"


@aio
async def test_one_of_two_guarded_writes_wins(row: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("old")
    async with provider(row) as ctx:
        fs = fs_of(ctx)
        target = await fs.resolve("f", str(tmp_path))
        info = await fs.stat(target)
        assert info is not None
        seen = ReplaceIfVersion(info.version)

        outcomes = await asyncio.gather(
            fs.write_text(target, "one", expected=seen),
            fs.write_text(target, "two", expected=seen),
            return_exceptions=True,
        )

        failures = [o for o in outcomes if isinstance(o, FsError)]
        assert [f.fs_code for f in failures] == ["FS_STALE_VERSION"]
        assert (tmp_path / "f").read_text() in ("one", "two")


@aio
async def test_a_guarded_create_never_clobbers(row: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "f").write_text("theirs")
    async with provider(row) as ctx:
        fs = fs_of(ctx)
        target = await fs.resolve("f", str(tmp_path))

        with pytest.raises(FsError) as caught:
            await fs.write_text(target, "mine", expected=CreateIfAbsent())

        assert caught.value.fs_code == "FS_NOT_OBSERVED"
        assert (tmp_path / "f").read_text() == "theirs"


@aio
async def test_an_edit_changes_only_the_bytes_it_must(row: ModuleType, tmp_path: Path) -> None:
    """FT-01, FT-05: line breaks, order mark and mode stay."""
    file = tmp_path / "f"
    file.write_bytes(b"\xef\xbb\xbfa = 1\r\nb = 2\nc = 3\r\n")
    file.chmod(0o750)
    async with provider(row) as ctx:
        fs = fs_of(ctx)
        target = await fs.resolve("f", str(tmp_path))
        info = await fs.stat(target)
        assert info is not None

        await fs.edit_text(target, FsEditRequest("b = 2", r"b = \1 $&"), expected=FsEditIntent(info.version))

        assert file.read_bytes() == b"\xef\xbb\xbfa = 1\r\nb = \\1 $&\nc = 3\r\n"
        assert file.stat().st_mode & 0o777 == 0o750
        assert [entry.name for entry in tmp_path.iterdir()] == ["f"]


@aio
async def test_what_is_no_text_is_refused_untouched(row: ModuleType, tmp_path: Path) -> None:
    """FT-03."""
    file = tmp_path / "f"
    file.write_bytes(b"limit = 1  # caf\xe9\n")
    before = file.stat()
    async with provider(row) as ctx:
        fs = fs_of(ctx)
        target = await fs.resolve("f", str(tmp_path))

        with pytest.raises(FsError) as read:
            await fs.read_text(target)
        with pytest.raises(FsError) as edited:
            await fs.edit_text(target, FsEditRequest("limit = 1", "limit = 2"))

        assert (read.value.fs_code, edited.value.fs_code) == ("FS_NOT_TEXT", "FS_NOT_TEXT")
        assert (file.stat().st_mtime_ns, file.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


@aio
async def test_a_fifo_is_refused_at_once(row: ModuleType, tmp_path: Path) -> None:
    """FT-08."""
    os.mkfifo(tmp_path / "pipe")
    async with provider(row) as ctx:
        fs = fs_of(ctx)
        target = await fs.resolve("pipe", str(tmp_path))

        async with asyncio.timeout(1):
            with pytest.raises(FsError) as caught:
                await fs.read_text(target)

        assert caught.value.fs_code == "FS_NOT_REGULAR_FILE"


@aio
async def test_a_cancelled_write_creates_nothing(row: ModuleType, tmp_path: Path) -> None:
    token = CancelToken()
    token.cancel("stop")
    async with provider(row) as ctx:
        fs = fs_of(ctx)
        target = await fs.resolve("f", str(tmp_path))

        with pytest.raises(FsError) as caught:
            await fs.write_text(target, "x", signal=token)

        assert caught.value.fs_code == "FS_ABORTED"
        assert list(tmp_path.iterdir()) == []
