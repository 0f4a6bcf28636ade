"""Reading regular UTF-8 files from a descriptor that is known to be one."""

import codecs
import os
import stat

from dsh.capabilities.fs import FsError
from dsh.capabilities.local_fs.error import not_regular, os_errors
from dsh.capabilities.local_fs.thread import Halt

CHUNK_BYTES = 1024 * 1024
HEAD_BYTES = 4096
"""As much of a file that is no text as is looked at to tell what it is."""
MAX_WHOLE_BYTES = 256 * 1024 * 1024
"""A text that is read whole (every edit does) takes a small multiple of its size in memory."""


def open_regular(path: str, shown: str, action: str) -> tuple[int, os.stat_result]:
    """Open a regular file and say what the descriptor is. Never waits, whatever the path turns out to be.

    The type is looked at before opening (opening a device can do things) and again afterwards (the path
    may have become something else in between).
    """
    with os_errors(action, shown):
        _require_regular(os.stat(path), action, shown)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            info = os.fstat(fd)
            _require_regular(info, action, shown)
        except BaseException:
            os.close(fd)
            raise
    return fd, info


def _require_regular(info: os.stat_result, action: str, shown: str) -> None:
    if not stat.S_ISREG(info.st_mode):
        raise not_regular(action, shown, info.st_mode)


def read_up_to(fd: int, limit: int, halt: Halt) -> bytes:
    """At most `limit` bytes from the descriptor's position; fewer at the end of the file."""
    pieces, left = [], limit
    while left > 0:
        halt.check()
        piece = os.read(fd, min(CHUNK_BYTES, left))
        if not piece:
            break
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def read_whole(fd: int, size: int, limit: int, *, action: str, shown: str, halt: Halt) -> bytes:
    """The content of an open file of at most `limit` bytes, growth after `size` was taken included."""
    if size <= limit:
        with os_errors(action, shown):
            data = read_up_to(fd, limit + 1, halt)
        if len(data) <= limit:
            return data
    raise FsError("FS_TOO_LARGE", f'cannot {action} "{shown}": it is larger than {limit} bytes')


def decode(data: bytes, action: str, shown: str) -> str:
    """The text of a whole file. A byte order mark stays.

    Raises:
        FsError: `FS_NOT_TEXT` for a NUL or invalid UTF-8 anywhere.
    """
    if (at := data.find(b"\0")) >= 0:
        raise _not_text(action, shown, f"NUL at byte {at}", data, len(data))
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        why = f"byte {error.start} is not valid UTF-8"
        raise _not_text(action, shown, why, data, len(data)) from None


class TextStream:
    """A regular file decoded piece by piece. Bounded memory; closes itself at the end."""

    def __init__(self, path: str, shown: str) -> None:
        self._shown = shown
        self._fd, info = open_regular(path, shown, "read")
        self._size = info.st_size
        self._head = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")
        self._taken = 0

    def next(self) -> str:
        """The next piece of text, empty at the end of the file."""
        while self._fd >= 0:
            with os_errors("read", self._shown):
                data = os.read(self._fd, CHUNK_BYTES)
            self._head = self._head or data[:HEAD_BYTES]
            if (at := data.find(b"\0")) >= 0:
                raise self._not_text(f"NUL at byte {self._taken + at}")
            pending = len(self._decoder.getstate()[0])
            try:
                text = self._decoder.decode(data, final=not data)
            except UnicodeDecodeError as error:
                at = self._taken - pending + error.start
                raise self._not_text(f"byte {at} is not valid UTF-8") from None
            self._taken += len(data)
            if not data:
                self.close()
            if text:
                return text
        return ""

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _not_text(self, why: str) -> FsError:
        return _not_text("read", self._shown, why, self._head, self._size)


def _not_text(action: str, shown: str, why: str, data: bytes, size: int) -> FsError:
    from dsh.capabilities.local_fs.kind import described  # only a refusal needs it

    what = described(data[:HEAD_BYTES], size)
    message = f'cannot {action} "{shown}": not a UTF-8 text file ({why})'
    return FsError("FS_NOT_TEXT", f"{message}; {what}" if what else message)


def normalized(text: str) -> str:
    """The text with LF for every CRLF. A lone CR stays."""
    return text.replace("\r\n", "\n")
