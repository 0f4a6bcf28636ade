"""The owner lock: who has a session open for writing, across processes (`design.md` §10.40).

`owner.lock` beside the log, held by `flock`; it goes with its process, however that ends. The file stays,
its text (pid and host name) is only for the message that the next one gets.
"""

import fcntl
import json
import os
from pathlib import Path

from dsh.persistence.error import SessionBusy
from dsh.persistence.files import FILE_MODE

LOCK_NAME = "owner.lock"
_TEXT_LIMIT = 4096


class OwnerLock:
    """A held lock. Release it exactly once; releasing twice is harmless."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd

    @classmethod
    def acquire(cls, folder: Path, name: str = LOCK_NAME, *, place: str = "") -> "OwnerLock":
        """Take the lock of the session in `folder`, which must exist. Never waits.

        Args:
            name: of the lock's file, where a folder holds those of many sessions.
            place: what the lock is for, in a message; else the folder.

        Raises:
            SessionBusy: somebody holds it, in this process or another.
        """
        path = folder / name
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_still(path, fd):
                    _sign(fd)
                    return cls(path, fd)
            except BlockingIOError:
                owner = _read_owner(fd)
                os.close(fd)
                raise SessionBusy(place or str(folder), owner) from None
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _is_still(path: Path, fd: int) -> bool:
    """Whether the name still leads to the locked file: somebody may have removed the folder meanwhile."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _sign(fd: int) -> None:
    text = json.dumps({"pid": os.getpid(), "host": os.uname().nodename})
    os.ftruncate(fd, 0)
    os.pwrite(fd, text.encode() + b"\n", 0)


def _read_owner(fd: int) -> str:
    try:
        owner = json.loads(os.pread(fd, _TEXT_LIMIT, 0))
        return f"process {int(owner['pid'])} on host {owner['host']}"
    except (ValueError, KeyError, TypeError, OSError):
        return "another process"
