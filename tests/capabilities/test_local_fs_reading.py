"""Reads are of regular UTF-8 files, bounded, and refuse everything else at once and untouched."""

import asyncio
import os
import socket
import time
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from dsh.capabilities.fs import FsError
from dsh.capabilities.local_fs import reading
from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from dsh.capabilities.local_fs.thread import Halt
from dsh.kernel import CancelToken
from tests.aio import aio


def files(tmp_path: Path) -> LocalFileSystem:
    return LocalFileSystem(FsConfig(cwd=str(tmp_path)))


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def streamed(fs: LocalFileSystem, path: str) -> str:
    async with aclosing(fs.stream_text(await fs.resolve(path))) as pieces:
        return "".join([piece async for piece in pieces])


@aio
async def test_text_comes_back_as_it_is(tmp_path: Path) -> None:
    fs = files(tmp_path)
    data = "\ufeffa\r\nb\rc\n\u2028é🏷".encode()
    (tmp_path / "f").write_bytes(data)

    assert (await fs.read_text(await fs.resolve("f"))).encode() == data
    assert (await streamed(fs, "f")).encode() == data


@pytest.mark.parametrize(
    "data",
    [
        b"limit = 1  # caf\xe9\n",
        "limit = 1  # café\n".encode("utf-16"),
        "limit = 1  # 中文\n".encode("gb18030"),
        b"x" * 8999 + b"\xff" + b"x" * 100,
        b"x" * 20_000 + b"\0" + b"x",
        b"x" * (reading.CHUNK_BYTES - 1) + "é".encode()[:1],
        b"cut \xe2\x82",
        b"surrogate \xed\xa0\x80",
    ],
)
@aio
async def test_what_is_not_utf8_text_is_refused_wherever_it_shows(tmp_path: Path, data: bytes) -> None:
    fs = files(tmp_path)
    (tmp_path / "f").write_bytes(data)
    before = (tmp_path / "f").stat()

    for read in (streamed, _read):
        with pytest.raises(FsError) as caught:
            await read(fs, "f")
        assert caught.value.code == "FS_NOT_TEXT"
    assert (tmp_path / "f").read_bytes() == data
    assert (tmp_path / "f").stat().st_mtime_ns == before.st_mtime_ns


async def _read(fs: LocalFileSystem, path: str) -> str:
    return await fs.read_text(await fs.resolve(path))


@aio
async def test_a_character_across_two_chunks_is_whole(tmp_path: Path) -> None:
    fs = files(tmp_path)
    text = "x" * (reading.CHUNK_BYTES - 2) + "🏷" + "y" * 10
    (tmp_path / "f").write_text(text)

    assert await streamed(fs, "f") == text


@aio
async def test_the_place_of_bad_bytes_is_told(tmp_path: Path) -> None:
    fs = files(tmp_path)
    place = reading.CHUNK_BYTES + 5
    (tmp_path / "f").write_bytes(b"x" * (reading.CHUNK_BYTES - 1) + "é".encode() + b"xxxx\xff")

    for read in (streamed, _read):
        with pytest.raises(FsError, match=f"byte {place} is not valid UTF-8"):
            await read(fs, "f")


def _link_to_fifo(path: Path) -> None:
    os.mkfifo(f"{path}.real")
    path.symlink_to(f"{path}.real")


SPECIAL: dict[str, Callable[[Path], None]] = {
    "fifo": os.mkfifo,
    "directory": Path.mkdir,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link to a fifo": _link_to_fifo,
}


@pytest.mark.parametrize("kind", SPECIAL)
@aio
async def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, kind: str) -> None:
    fs = files(tmp_path)
    SPECIAL[kind](tmp_path / "x")
    target = await fs.resolve("x")
    started = time.monotonic()

    for read in (
        lambda: fs.read_text(target),
        lambda: fs.read_bytes(target, max_bytes=10),
        lambda: streamed(fs, "x"),
    ):
        with pytest.raises(FsError) as caught:
            await read()
        assert caught.value.code == "FS_NOT_REGULAR_FILE"
    assert time.monotonic() - started < 30


@aio
async def test_a_socket_is_refused(tmp_path: Path) -> None:
    fs = files(tmp_path)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))

        with pytest.raises(FsError, match="a socket") as caught:
            await fs.read_text(await fs.resolve("s"))

    assert caught.value.code == "FS_NOT_REGULAR_FILE"


def test_a_file_that_turns_into_a_fifo_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    path, first_look = tmp_path / "f", os.stat
    path.write_text("x")

    def look(at: str) -> os.stat_result:
        seen = first_look(at)
        path.unlink()
        os.mkfifo(path)
        return seen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "stat", look)
        with pytest.raises(FsError) as caught:
            reading.open_regular(str(path), "f", "read")

    assert caught.value.code == "FS_NOT_REGULAR_FILE"


def test_what_is_known_to_be_too_large_is_not_read(tmp_path: Path) -> None:
    with pytest.raises(FsError) as caught:
        reading.read_whole(-1, 6, 5, action="read", shown="f", halt=Halt(None, "read", "f"))

    assert caught.value.code == "FS_TOO_LARGE"


def test_a_long_read_that_nobody_waits_for_stops_between_two_pieces(tmp_path: Path) -> None:
    path, signal = tmp_path / "f", CancelToken()
    path.write_bytes(b"123456")
    descriptor = os.open(path, os.O_RDONLY)
    read = os.read

    def cancelling(fd: int, size: int) -> bytes:
        signal.cancel("stop")
        return read(fd, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "CHUNK_BYTES", 2)
        patch.setattr(os, "read", cancelling)
        with pytest.raises(FsError) as caught:
            reading.read_up_to(descriptor, 6, Halt(signal, "read", "f"))
    os.close(descriptor)

    assert caught.value.code == "FS_ABORTED"


@aio
async def test_the_place_of_a_late_nul_is_told_in_bytes_from_the_start(tmp_path: Path) -> None:
    at = reading.CHUNK_BYTES + 5
    (tmp_path / "f").write_bytes(b"x" * at + b"\0")

    with pytest.raises(FsError, match=f"NUL at byte {at}"):
        await streamed(files(tmp_path), "f")


@aio
async def test_bytes_are_capped_and_never_cut(tmp_path: Path) -> None:
    fs = files(tmp_path)
    (tmp_path / "f").write_bytes(b"12345")
    target = await fs.resolve("f")

    assert await fs.read_bytes(target, max_bytes=5) == b"12345"
    with pytest.raises(FsError) as caught:
        await fs.read_bytes(target, max_bytes=4)
    assert caught.value.code == "FS_TOO_LARGE"


def test_growth_after_the_size_was_taken_is_caught(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"123456")
    descriptor = os.open(path, os.O_RDONLY)

    with pytest.raises(FsError) as caught:
        reading.read_whole(descriptor, 2, 5, action="read", shown="f", halt=Halt(None, "read", "f"))
    os.close(descriptor)

    assert caught.value.code == "FS_TOO_LARGE"


@aio
async def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    fs = files(tmp_path)

    with pytest.raises(FsError, match="not found") as caught:
        await fs.read_text(await fs.resolve("none"))

    assert caught.value.code == "FS_NOT_FOUND"


@aio
async def test_a_cancelled_signal_is_fs_aborted(tmp_path: Path) -> None:
    fs = files(tmp_path)
    (tmp_path / "f").write_text("x")
    target = await fs.resolve("f")
    signal = CancelToken()
    signal.cancel("stop")

    with pytest.raises(FsError) as caught:
        await fs.read_text(target, signal=signal)

    assert caught.value.code == "FS_ABORTED"


@aio
async def test_a_stream_stops_between_pieces_and_closes_its_file(tmp_path: Path) -> None:
    fs = files(tmp_path)
    (tmp_path / "f").write_bytes(b"x" * 3 * reading.CHUNK_BYTES)
    signal = CancelToken()
    pieces = fs.stream_text(await fs.resolve("f"), signal=signal)
    await anext(pieces)
    held = open_descriptors()

    signal.cancel("stop")
    with pytest.raises(FsError):
        await anext(pieces)

    assert open_descriptors() == held - 1


@aio
async def test_a_stream_that_is_left_early_closes_its_file(tmp_path: Path) -> None:
    fs = files(tmp_path)
    (tmp_path / "f").write_bytes(b"x" * 3 * reading.CHUNK_BYTES)
    held = open_descriptors()

    async with aclosing(fs.stream_text(await fs.resolve("f"))) as pieces:
        await anext(pieces)

    await asyncio.sleep(0)
    assert open_descriptors() == held


@aio
async def test_a_file_without_a_size_is_read(tmp_path: Path) -> None:
    fs = files(tmp_path)

    assert "Name:" in await fs.read_text(await fs.resolve("/proc/self/status"))
