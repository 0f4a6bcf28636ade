"""Every error of the operating system becomes an `FsError` with a code, a path and what was wrong."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from dsh.capabilities.fs import FsError, FsErrorCode

_CODES: dict[int, tuple[FsErrorCode, str]] = {
    errno.ENOENT: ("FS_NOT_FOUND", "not found"),
    errno.ENOTDIR: ("FS_NOT_FOUND", "not found (a part of the path is not a directory)"),
    errno.ENAMETOOLONG: ("FS_NOT_FOUND", "the name is too long to exist"),
    errno.EACCES: ("FS_PERMISSION_DENIED", "permission denied"),
    errno.EPERM: ("FS_PERMISSION_DENIED", "operation not permitted"),
    errno.EISDIR: ("FS_NOT_REGULAR_FILE", "it is a directory, not a regular file"),
    errno.ENXIO: ("FS_NOT_REGULAR_FILE", "it is not a regular file"),
}

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFLNK: "a symbolic link that leads nowhere",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


def from_os(error: OSError, action: str, path: str) -> FsError:
    """The `FsError` for what the system said while doing `action` ("read", "write") to `path`."""
    number = error.errno or 0
    code, what = _CODES.get(number, ("FS_IO_ERROR", ""))
    if not what:
        name = errno.errorcode.get(number, "unknown error")
        what = f"{os.strerror(number).lower()} ({name})" if number else str(error)
    return FsError(code, f'cannot {action} "{path}": {what}')


@contextlib.contextmanager
def os_errors(action: str, path: str) -> Iterator[None]:
    """Map what the block raises; an `FsError` passes."""
    try:
        yield
    except OSError as error:
        raise from_os(error, action, path) from error


def not_regular(action: str, path: str, mode: int) -> FsError:
    """The refusal of a directory, FIFO, socket, device or link."""
    kind = kind_of(mode)
    return FsError("FS_NOT_REGULAR_FILE", f'cannot {action} "{path}": it is {kind}, not a regular file')


def kind_of(mode: int) -> str:
    """What a file mode stands for, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def aborted(action: str, path: str) -> FsError:
    """The operation was cancelled before it changed anything."""
    return FsError("FS_ABORTED", f'cancelled: {action} "{path}"')
