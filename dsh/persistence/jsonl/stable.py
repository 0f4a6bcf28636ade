"""Reading a file that another process may be writing: what is answered was there at one moment."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import TypeVar

from dsh.persistence.error import LogRefusal, NotAFile, PersistenceError

T = TypeVar("T")

STABLE_READS = 5
"""How often a file that changes while it is read is read again before that becomes an error."""


STEP = 1 << 20
"""Bytes that are read at a time."""


def revision_of(found: os.stat_result) -> str:
    """A token that changes whenever the file may have; compare for equality only."""
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def open_regular(path: Path) -> FileIO:
    """Open without waiting for a writer, as a pipe would make us do; only a regular file is a log.

    Raises:
        NotAFile: it is something else.
        OSError: it cannot be opened.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):  # a socket, a device that is not there
            raise NotAFile("this is no regular file, not a session log", path=str(path)) from None
        raise
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise NotAFile(f"this is {kind}, not a session log", path=str(path))
    return FileIO(fd, closefd=True)


def read_stably(
    path: Path,
    read: Callable[[FileIO, os.stat_result], T],
    *,
    may_grow: Callable[[T], bool] = lambda made: False,
) -> T:
    """What `read` makes of a file that did not change meanwhile. Where it did, it is read again.

    Args:
        read: gets the file and its state; it must not read beyond the size it had then.
        may_grow: whether a result holds even though the file was appended to meanwhile.

    Raises:
        LogRefusal: what `read` raised on a file at rest.
        PersistenceError: it kept changing, or is no regular file.
        OSError: it cannot be read.
    """
    for _ in range(STABLE_READS):
        with open_regular(path) as file:
            before = os.fstat(file.fileno())
            refusal: LogRefusal | None = None
            try:
                made = read(file, before)
            except LogRefusal as error:
                refusal = error
            after = os.fstat(file.fileno())
            is_same = revision_of(after) == revision_of(before)
            if refusal is None:
                if is_same or (after.st_size > before.st_size and may_grow(made)):
                    return made
            elif is_same:
                raise refusal
    raise PersistenceError(
        f"{path}: the file changed during each of {STABLE_READS} attempts to read it",
        hint="another program is writing this log; try again when it has ended",
    )


def pieces(file: FileIO, size: int) -> Iterator[bytes]:
    """The next `size` bytes of a file, at most `STEP` at a time; fewer where it ends before."""
    while size > 0 and (piece := file.read(min(STEP, size))):
        size -= len(piece)
        yield piece


def read_bytes(path: Path) -> tuple[bytes, os.stat_result]:
    """All bytes of a file at one moment, and its state then. Raises as `read_stably`."""
    return read_stably(path, lambda file, found: (file.readall(), found))
