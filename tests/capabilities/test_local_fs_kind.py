"""What is no UTF-8 text is refused by name, with what to do where something can be done."""

import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.capabilities.fs import FsError
from dsh.capabilities.local_fs.kind import described
from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from tests.aio import aio

PNG = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480) + b"\x08\x02\0\0\0"
JPEG = (
    b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"JFIF\0" + bytes(9)
    + b"\xff\xc4" + struct.pack(">H", 4) + b"\0\0"
    + b"\xff\xc0" + struct.pack(">HBHHB", 17, 8, 300, 400, 3)
)  # fmt: skip
TEXT = "Viele Grüße, 你好世界，这是一个测试。\n"


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (PNG, "it is a PNG image, 640x480 pixels, 99 bytes; images are not shown"),
        (PNG[:14], "it is a PNG image, 99 bytes; images are not shown"),
        (JPEG, "it is a JPEG image, 400x300 pixels, 99 bytes; images are not shown"),
        (JPEG[:4] + b"garbage", "it is a JPEG image, 99 bytes; images are not shown"),
        (
            b"GIF89a" + struct.pack("<HH", 3, 4),
            "it is a GIF image, 3x4 pixels, 99 bytes; images are not shown",
        ),
        (
            b"BM" + bytes(8) + struct.pack("<IIii", 54, 40, 7, -8),
            "it is a BMP image, 7x8 pixels, 99 bytes; images are not shown",
        ),
        (
            b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\x0f\0\0\x1f\0\0",
            "it is a WebP image, 16x32 pixels, 99 bytes; images are not shown",
        ),
        (
            b"RIFF\0\0\0\0WEBPVP8 " + bytes(10) + struct.pack("<HH", 5, 6),
            "it is a WebP image, 5x6 pixels, 99 bytes; images are not shown",
        ),
        (b"RIFF\0\0\0\0WEBPxxxx", "it is a WebP image, 99 bytes; images are not shown"),
        (b"\0\0\x01\0\x01\0\x10\x20", "it is an icon, 16x32 pixels, 99 bytes; images are not shown"),
        (b"II*\0\0", "it is a TIFF image, 99 bytes; images are not shown"),
        (b"%PDF-1.7\n\xff", "it is a PDF document"),
        (b"\x7fELF\x02\x01", "it is an ELF program or library"),
        (b"\x1f\x8b\x08\0", "it is gzip data"),
        (bytes(257) + b"ustar\0", "it is a tar archive"),
        (b"SQLite format 3\0", "it is an SQLite database"),
        (zlib.compress(b"x" * 100) + b"\0" * 9, "it holds binary data"),
        (
            TEXT.encode("utf-16"),
            "it is text in UTF-16LE; convert it with `iconv -f UTF-16LE -t UTF-8` in a shell",
        ),
        (
            b"\xfe\xff" + "hi".encode("utf-16-be"),
            "it is text in UTF-16BE; convert it with `iconv -f UTF-16BE -t UTF-8` in a shell",
        ),
        (
            TEXT.encode("utf-32"),
            "it is text in UTF-32LE; convert it with `iconv -f UTF-32LE -t UTF-8` in a shell",
        ),
        (
            "limit = 1\r\n".encode("utf-16-le"),
            "it looks like text in UTF-16LE; convert it with `iconv -f UTF-16LE -t UTF-8` in a shell",
        ),
        (
            "limit = 1\r\n".encode("utf-16-be"),
            "it looks like text in UTF-16BE; convert it with `iconv -f UTF-16BE -t UTF-8` in a shell",
        ),
        (
            "配置 = 1  # 上限值\n".encode("gb18030"),
            "it may be text in GB18030; convert it with `iconv -f GB18030 -t UTF-8` in a shell",
        ),
        (
            b"limit = 1  # caf\xe9\n",
            "it may be text in Latin-1 or Windows-1252; convert it with `iconv -f WINDOWS-1252 -t UTF-8` "
            "in a shell",
        ),
        (b"a\0b", "it holds binary data"),
        (b"plain\n", ""),
        (b"", ""),
    ],
)
def test_a_head_is_named(head: bytes, expected: str) -> None:
    assert described(head, 99) == expected


@given(
    st.binary(max_size=300),
    st.sampled_from([b"", PNG[:8], JPEG[:3], b"GIF89a", b"BM\0\0\0\0\0\0\0\0", b"RIFF"]),
)
def test_any_bytes_have_some_description(data: bytes, start: bytes) -> None:
    assert isinstance(described(start + data, None), str)


@pytest.mark.skipif(shutil.which("iconv") is None, reason="there is no program iconv")
@pytest.mark.parametrize("name", ["UTF-16LE", "UTF-16BE", "WINDOWS-1252", "GB18030", "UTF-32LE"])
def test_what_is_advised_works(name: str, tmp_path: Path) -> None:
    text = "limit = 1  # café\n" if name != "GB18030" else "配置\n"
    path = tmp_path / "f"
    path.write_bytes(text.encode(name))
    done = subprocess.run(["iconv", "-f", name, "-t", "UTF-8", str(path)], capture_output=True, check=True)

    assert done.stdout.decode() == text


@aio
async def test_the_refusal_of_a_read_and_of_an_edit_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG + bytes(100))
    fs = LocalFileSystem(FsConfig(cwd=str(tmp_path)))
    target = await fs.resolve("a.png")
    with pytest.raises(FsError) as whole:
        await fs.read_text(target)
    with pytest.raises(FsError) as streamed:
        async for _ in fs.stream_text(target):
            pass

    assert whole.value.message == streamed.value.message
    assert whole.value.message == (
        f'cannot read "{tmp_path}/a.png": not a UTF-8 text file (NUL at byte 8); it is a PNG image, '
        f"640x480 pixels, {len(PNG) + 100} bytes; images are not shown"
    )
