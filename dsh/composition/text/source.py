"""Reads the files that people write by hand: bounded, and never waiting for a writer that is not there."""

import errno
import os
import stat

MAX_BYTES = 1024 * 1024
"""The longest file that is read; what is cut off here is refused by whoever parses it."""
MAX_SLOW_CHARACTERS = 128 * 1024
"""The longest text for the parser that is written in Python: two seconds and 70 MiB on a slow machine."""


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a file or pipe; of a longer one `MAX_BYTES` and one more.

    Raises:
        OSError: it cannot be opened or read, or is a pipe that nobody writes to.
        ValueError: the path holds a zero byte.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.set_blocking(descriptor, True)
        parts, left = [], MAX_BYTES + 1
        while left and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
        if not parts and stat.S_ISFIFO(os.fstat(descriptor).st_mode):
            raise OSError(errno.EPIPE, "a pipe that nobody has written to", os.fspath(path))
        return b"".join(parts)
    finally:
        os.close(descriptor)
