"""An edit checks version and type, changes the matched bytes, and leaves everything else alone."""

import asyncio
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.capabilities.fs import FsEditIntent, FsEditOutcome, FsEditRequest, FsError
from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from tests.aio import aio


def files(tmp_path: Path) -> LocalFileSystem:
    return LocalFileSystem(FsConfig(cwd=str(tmp_path)))


async def edit(
    fs: LocalFileSystem, path: str, old: str, new: str, *, seen: str | None = None, replace_all: bool = False
) -> FsEditOutcome:
    expected = FsEditIntent(seen) if seen is not None else None
    return await fs.edit_text(await fs.resolve(path), FsEditRequest(old, new, replace_all), expected=expected)


async def refused(fs: LocalFileSystem, path: str, old: str = "x", *, seen: str | None = None) -> str:
    with pytest.raises(FsError) as caught:
        await edit(fs, path, old, "new", seen=seen)
    return caught.value.code


@aio
async def test_only_the_matched_bytes_change(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\nc\r\nd")

    outcome = await edit(files(tmp_path), "f", "b", "B")

    assert path.read_bytes() == b"\xef\xbb\xbfa\r\nB\nc\r\nd"
    assert (outcome.before, outcome.after) == ("\ufeffa\nb\nc\nd", "\ufeffa\nB\nc\nd")


@settings(max_examples=30)
@given(
    before=st.binary(max_size=40).filter(lambda b: b"\0" not in b and b"MARK" not in b),
    after=st.binary(max_size=40).filter(lambda b: b"\0" not in b and b"MARK" not in b),
)
def test_every_byte_around_a_match_survives_or_the_file_is_untouched(before: bytes, after: bytes) -> None:
    import tempfile

    data = before + b"<MARK>" + after
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f"
        path.write_bytes(data)
        try:
            data.decode()
        except UnicodeDecodeError:
            assert asyncio.run(refused(files(Path(folder)), "f", "MARK")) == "FS_NOT_TEXT"
            assert path.read_bytes() == data
        else:
            asyncio.run(edit(files(Path(folder)), "f", "MARK", "new text"))
            assert path.read_bytes() == before + b"<new text>" + after


@pytest.mark.parametrize("mode", [0o755, 0o640])
@aio
async def test_mode_and_links_stay(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "run.sh"
    path.write_text("x")
    path.chmod(mode)
    (tmp_path / "l").symlink_to("run.sh")

    await edit(files(tmp_path), "l", "x", "y")

    assert (tmp_path / "l").is_symlink()
    assert path.read_text() == "y"
    assert stat.S_IMODE(path.stat().st_mode) == mode


@aio
async def test_a_file_with_several_names_is_edited_in_place(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "g").hardlink_to(tmp_path / "f")

    outcome = await edit(files(tmp_path), "f", "x", "longer than before")

    assert (tmp_path / "g").read_text() == "longer than before"
    assert outcome.note is not None
    assert "1 other name (hard link)" in outcome.note


@aio
async def test_a_missing_file_is_stale_guarded_or_not(tmp_path: Path) -> None:
    fs = files(tmp_path)

    assert await refused(fs, "none") == "FS_STALE_VERSION"
    assert await refused(fs, "none", seen="1:2:3:4:5") == "FS_STALE_VERSION"


@aio
async def test_a_stale_version_is_told_before_the_text_is_looked_at(tmp_path: Path) -> None:
    fs = files(tmp_path)
    (tmp_path / "f").write_text("x")
    info = await fs.stat(await fs.resolve("f"))
    assert info is not None
    await asyncio.sleep(0.01)
    (tmp_path / "f").write_text("something else")

    assert await refused(fs, "f", "not in it", seen=info.version) == "FS_STALE_VERSION"


@aio
async def test_the_version_of_an_edit_serves_the_next_one(tmp_path: Path) -> None:
    fs = files(tmp_path)
    (tmp_path / "f").write_text("1")
    seen = None

    for number in range(1, 6):
        seen = (await edit(fs, "f", str(number), str(number + 1), seen=seen)).version

    assert (tmp_path / "f").read_text() == "6"


@aio
async def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    fs = files(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "l").symlink_to("nowhere")
    (tmp_path / "d").mkdir()

    for name in ("fifo", "l", "d", "/dev/zero"):
        assert await refused(fs, name, seen="v") == "FS_NOT_REGULAR_FILE"


@pytest.mark.parametrize(
    "data", [b"limit = 1 # caf\xe9\n", b"limit = 1" + b" " * 20_000 + b"\0", b"limit = 1\xff"]
)
@aio
async def test_a_file_that_is_not_text_is_untouched(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(data)
    before = path.stat()

    assert await refused(files(tmp_path), "f", "limit = 1") == "FS_NOT_TEXT"

    assert path.read_bytes() == data
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert path.stat().st_ino == before.st_ino


@aio
async def test_a_change_while_editing_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("x")

    def interfered(*args: object) -> str:
        path.write_text("theirs")
        return "ours"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dsh.capabilities.local_fs.mutate.splice", interfered)
        assert await refused(files(tmp_path), "f") == "FS_STALE_VERSION"

    assert path.read_text() == "theirs"
    assert {p.name for p in tmp_path.iterdir()} == {"f"}


@aio
async def test_a_failed_edit_leaves_the_file_alone(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x x")
    before = (tmp_path / "f").stat()

    assert await refused(files(tmp_path), "f") == "FS_AMBIGUOUS_EDIT"
    assert await refused(files(tmp_path), "f", "zz") == "FS_EDIT_NOT_FOUND"

    assert (tmp_path / "f").stat().st_mtime_ns == before.st_mtime_ns
