"""The owner lock: who has a session open for writing, across processes (`design.md` §10.40).

`owner.lock` beside the log, held by `flock`; it goes with its process, however that ends. The file stays,
its text (pid, host name, since when in epoch milliseconds) is only for the message that the next one gets.
"""

import contextlib
import errno
import fcntl
import json
import os
import stat
import time
from pathlib import Path

from dsh.persistence.error import SessionBusy
from dsh.persistence.files import FILE_MODE

LOCK_NAME = "owner.lock"
_TEXT_LIMIT = 4096


class OwnerLock:
    """A held lock. Release it exactly once; releasing twice is harmless."""

    def __init__(self, path: Path, fd: int, *, is_new: bool) -> None:
        self.path = path
        self.is_new = is_new
        """Nobody had signed the file before."""
        self._fd = fd

    @classmethod
    def acquire(cls, folder: Path, name: str = LOCK_NAME, *, place: str = "") -> "OwnerLock":
        """Take the lock of the session in `folder`, which must exist. Never waits.

        Args:
            name: of the lock's file, where a folder holds those of many sessions.
            place: what the lock is for, in a message; else the folder.

        Raises:
            SessionBusy: somebody holds it, in this process or another.
            OSError: the file cannot be made, is a link or no regular file, or cannot be locked where it lies.
        """
        path = folder / name
        while True:
            fd = _open(path)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_still(path, fd):
                    is_new = os.fstat(fd).st_size == 0
                    _sign(fd)
                    return cls(path, fd, is_new=is_new)
            except BlockingIOError:
                owner = _read_owner(fd)
                os.close(fd)
                raise SessionBusy(place or str(folder), owner) from None
            except OSError as error:
                os.close(fd)
                raise OSError(error.errno, error.strerror, str(path)) from None
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def discard(self) -> None:
        """Release it and remove its file, if that can be; who has just opened it will notice."""
        with contextlib.suppress(OSError):
            self.path.unlink()
        self.release()

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def owner_told(folder: Path, name: str = LOCK_NAME) -> str | None:
    """Who holds the lock of that name in `folder`, for a reader who does not want it; None for nobody.

    Only where a process of this host signed it that is alive is the lock tried at all, and shared: nobody
    who wants to write is in its way.
    """
    try:
        fd = os.open(folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        signed = json.loads(os.pread(fd, _TEXT_LIMIT, 0))
        if signed["host"] != os.uname().nodename:
            return None
        with contextlib.suppress(PermissionError):  # alive, of another user
            os.kill(int(signed["pid"]), 0)
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_owner(fd)
    except (ValueError, KeyError, TypeError, OSError, OverflowError, RecursionError):
        return None
    finally:
        os.close(fd)
    return None


def _open(path: Path) -> int:
    """A descriptor on the lock's file. Its text will be overwritten, so that it must not lie elsewhere."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags, FILE_MODE)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "no regular file", str(path))
    return fd


def _is_still(path: Path, fd: int) -> bool:
    """Whether the name still leads to the locked file: somebody may have removed the folder meanwhile."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _sign(fd: int) -> None:
    """Best effort: on a full disk a session must still be deletable."""
    text = json.dumps({"pid": os.getpid(), "host": os.uname().nodename, "since": time.time_ns() // 1_000_000})
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode() + b"\n", 0)


def _read_owner(fd: int) -> str:
    try:
        owner = json.loads(os.pread(fd, _TEXT_LIMIT, 0))
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(owner["since"] / 1000))
        return f"process {int(owner['pid'])} on host {owner['host']} since {since}"
    except (ValueError, KeyError, TypeError, OSError, OverflowError):
        return "another process"
