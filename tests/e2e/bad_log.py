# ruff: noqa: E501 -- a table
"""Everything that may lie where a session's log should, and the code of its refusal."""

import io
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import zstandard

from dsh.persistence.jsonl.frames import encode_frame
from dsh.persistence.jsonl.layout import LOG_NAMES

HEADER = b'{"type":"session","version":0,"id":"demo.1","createdAt":1700000000000,"cwd":"/srv/app","delegationDepth":0}\n'
START = b'{"type":"turn/start","seq":0,"time":1700000000001,"data":{"turn":1}}\n'
END = b'{"type":"turn/end","seq":1,"time":1700000000002,"data":{"turn":1,"reason":{"kind":"completed"}}}\n'
LOG = HEADER + START + END
DEEP = b"[" * 100_000 + b"]" * 100_000
HOLE = 600 << 20
"""More than a record may have, and as much again."""
BOMB = 300 << 20

FOREIGN, DAMAGED, OTHER = "NOT_A_SESSION_LOG", "CORRUPT_SESSION", "SESSION_VERSION_UNSUPPORTED"
UNKNOWN, NO_FILE, NOTHING = "SESSION_TYPE_UNKNOWN", "SESSION_LOG_NOT_A_FILE", "SESSION_NOT_FOUND"
UNREADABLE = "SESSION_UNREADABLE"
OPENS = ""


class Bad(NamedTuple):
    """One of them."""

    name: str
    make: Callable[[Path], object]
    code: str
    """Empty where it opens all the same."""
    is_listed: bool = False
    """Its header is in order, and a listing reads no further."""
    is_zstd: bool = False
    code_by_id: str = ""
    """Where the id says more than the file: what is refused then."""
    can_be_counted: bool = False
    """Refused or not, what its storage consists of can be told."""

    @property
    def file_name(self) -> str:
        return LOG_NAMES["zstd" if self.is_zstd else "plain"]


def text(name: str, data: bytes, code: str, *, listed: bool = False) -> Bad:
    return Bad(name, lambda path: path.write_bytes(data), code, listed or code == OPENS)


def frames(name: str, data: bytes, code: str, *, listed: bool = False) -> Bad:
    return text(name, data, code, listed=listed)._replace(is_zstd=True)


def version(written: bytes) -> bytes:
    return LOG.replace(b'"version":0', b'"version":' + written)


def sparse(beginning: bytes) -> Callable[[Path], object]:
    def make(path: Path) -> None:
        path.write_bytes(beginning)
        os.truncate(path, HOLE)

    return make


def bomb(size: int) -> bytes:
    """A small frame of so many NUL bytes."""
    packed = io.BytesIO()
    with zstandard.ZstdCompressor(write_checksum=True).stream_writer(packed, closefd=False) as writer:
        for _ in range(size >> 20):
            writer.write(bytes(1 << 20))
    return packed.getvalue()


def make_socket(path: Path) -> None:
    """A path may be longer than an address can be."""
    with socket.socket(socket.AF_UNIX) as opened:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        opened.bind(f"/proc/self/fd/{folder}/{path.name}")
        os.close(folder)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


WITH_CWD = b'"cwd":"/srv/app"'
FRAMES = encode_frame(HEADER) + encode_frame(START + END)

NO_FILES = [
    Bad("a folder", lambda path: path.mkdir(), NO_FILE),
    Bad("a pipe", os.mkfifo, NO_FILE),
    Bad("a socket", make_socket, NO_FILE),
    Bad("a device", lambda path: path.symlink_to("/dev/zero"), NO_FILE),
    Bad("a link that leads nowhere", lambda path: path.symlink_to("/no/such/file"), NOTHING),
    Bad("a link to itself", lambda path: path.symlink_to(path.name), UNREADABLE),
]
FOREIGN_FILES = [
    text("an empty file", b"", FOREIGN),
    text("a picture", b"\x89PNG\r\n\x1a\n" + bytes(range(256)), FOREIGN),
    text("a gzip file", b"\x1f\x8b\x08\0" + bytes(range(256)), FOREIGN),
    text("a database", b"SQLite format 3\0" + bytes(4080), FOREIGN),
    text("other JSON", b'{"name":"x","version":"1.0"}\n', FOREIGN),
    text("other JSON over lines", b'{\n  "name": "x"\n}\n', FOREIGN),
    text("a list", b"[]\n", FOREIGN),
    text("UTF-16", LOG.decode().encode("utf-16"), FOREIGN),
    text("a byte order mark", b"\xef\xbb\xbf" + LOG, FOREIGN),
    text("deep JSON", DEEP + b"\n", FOREIGN),
    text("a hundred thousand empty lines", b"\n" * 100_000, FOREIGN),
    text("a header of NUL bytes", bytes(len(HEADER)) + START + END, FOREIGN),
    frames("a skippable frame", b"\x50\x2a\x4d\x18\4\0\0\0abcd" + FRAMES, FOREIGN),
    frames("plain text by a compressed name", LOG, FOREIGN),
    frames("other text compressed", encode_frame(b"hello\n"), FOREIGN),
]
OTHER_VERSIONS = [text(f"version {v.decode()}", version(v), OTHER) for v in (b"-1", b"0.5", b"1", b"99")]
HEADERS = [
    text("a version as text", version(b'"0"'), DAMAGED),
    text("no version", version(b"null"), DAMAGED),
    text("an endless version", version(b"1e400"), DAMAGED),
    text("a version of many digits", version(b"9" * 5000), DAMAGED),
    text("half a header", HEADER[:50], DAMAGED),
    text("a header without its end", HEADER[:-1], DAMAGED),
    text("carriage returns only", LOG.replace(b"\n", b"\r"), DAMAGED),
    text("a header of 17 MiB", LOG.replace(WITH_CWD, b'"cwd":"/' + b"a" * (17 << 20) + b'"'), DAMAGED),
    frames("a header and more in one frame", encode_frame(LOG), DAMAGED),
]
RECORDS = [
    text("a type that nobody knows", HEADER + START + b'{"type":"x/y","seq":1,"time":1,"data":{}}\n', UNKNOWN, listed=True)._replace(can_be_counted=True),
    text("a deep record", HEADER + b'{"type":"x","seq":0,"time":1,"data":' + DEEP + b"}\n", DAMAGED, listed=True),
    text("a gap", HEADER + START + END.replace(b'"seq":1', b'"seq":7'), DAMAGED, listed=True),
    text("a record of NUL bytes", HEADER + bytes(len(START)) + b"\n" + END, DAMAGED, listed=True),
    text("no UTF-8", HEADER + b"\xff\xfe\n" + END.replace(b'"seq":1', b'"seq":0'), DAMAGED, listed=True),
    text("a surrogate in bytes", HEADER + START.replace(b"{\"turn\":1}", b'{"turn":1,"x":"\xed\xa0\xbd"}') + END, DAMAGED, listed=True),
    text("no number", HEADER + START.replace(b"1700000000001", b"NaN") + END, DAMAGED, listed=True),
    text("an endless number", HEADER + START.replace(b"1700000000001", b"9" * 10_000) + END, DAMAGED, listed=True),
    text("empty lines before the end", HEADER + b"\n" * 100_000 + START + END, DAMAGED, listed=True),
    frames("a flipped bit", flipped(FRAMES, len(FRAMES) - 20), DAMAGED, listed=True),
    text("the log of another id", LOG.replace(b"demo.1", b"demo.2"), OPENS)._replace(
        is_listed=False, code_by_id=DAMAGED
    ),
]  # fmt: skip
OPENING = [
    text("carriage returns too", LOG.replace(b"\n", b"\r\n"), OPENS),
    text("NUL bytes behind it", LOG + bytes(700), OPENS),
    text("empty lines behind it", LOG + b"\n" * 100_000, OPENS),
    text("half a record", HEADER + START + b'{"type":"assis', OPENS),
    text("nothing behind the header", HEADER, OPENS),
    text("time zero", LOG.replace(b"1700000000000", b"0").replace(b"1700000000001", b"0"), OPENS),
    text("the end of time", LOG.replace(b"1700000000000", b"9007199254740991").replace(b"1700000000002", b"9007199254740991"), OPENS),
    text("half a surrogate pair", HEADER + START.replace(b'{"turn":1}', b'{"turn":1,"x":"\\ud83d"}') + END, OPENS),
    frames("a torn frame", FRAMES[:-3], OPENS),
]  # fmt: skip
HUGE = [
    Bad("nothing but a hole", sparse(b""), FOREIGN),
    Bad("a hole behind it", sparse(LOG), OPENS, is_listed=True),
    frames("a bomb for a header", bomb(BOMB), DAMAGED),
    frames("a bomb for records", encode_frame(HEADER) + bomb(BOMB), DAMAGED, listed=True),
]
SMALL = [*NO_FILES, *FOREIGN_FILES, *OTHER_VERSIONS, *HEADERS, *RECORDS, *OPENING]
