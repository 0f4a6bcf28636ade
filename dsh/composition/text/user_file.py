"""Writes files that belong to a person: all of the new content or none of it, one writer at a time.

Settings, credentials, profiles. The lock is the system's (`flock`) on a file beside the written one, so that
a process that dies gives it back. The file is there while the lock is held, for that is what the original
takes for the lock; one that a dead process left behind means nothing.
"""

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from dsh.errors import DshError

FILE_MODE = 0o600
FOLDER_MODE = 0o700
FIRST_WAIT_S = 0.02
LONGEST_WAIT_S = 0.2
LONGEST_FOREIGN_S = 60.0
"""How old an unlocked lock file may be and still mean something: later its process may be another one."""


class UserFileError(DshError):
    """A file could not be written or locked; `path` names it."""

    def __init__(self, message: str, path: Path, *, hint: str = "") -> None:
        self.path = path
        super().__init__(message, hint=hint)


class LockHeld(UserFileError):
    """Somebody else is writing; `path` is that of the lock."""


def replace(path: Path, data: bytes, *, mode: int = FILE_MODE) -> None:
    """Give a file new content, atomically and durably; missing folders are made (0700).

    Written to a sibling with the final mode, flushed to the disk, then renamed over the file (a link is
    replaced itself, not what it points to). Afterwards the folder is flushed as well.

    Raises:
        UserFileError: it cannot be written; the old content is untouched and no sibling is left.
    """
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        make_folders(path.parent)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            try:
                os.fchmod(descriptor, mode)  # whatever the umask took away
                _write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        flush_folder(path.parent)
    except OSError as error:
        raise UserFileError(f"failed to write {path}: {_reason(error)}", path) from None


@contextlib.contextmanager
def locked(path: Path, *, timeout_s: float) -> Iterator[None]:
    """Be the only writer of a file, over all processes, for the length of the block.

    Blocks the thread while it waits. Not re-entrant: a second holder in the same process waits too.

    Args:
        path: the file to be written; the lock is `<file>.lock` beside it (0600), gone again after the block.
        timeout_s: how long to wait for another holder.

    Raises:
        LockHeld: another holder has it for too long.
        UserFileError: the lock file cannot be opened.
    """
    lock = path.with_name(f"{path.name}.lock")
    descriptor = _acquire(lock, timeout_s)
    try:
        with contextlib.suppress(OSError):  # for people, and for whoever takes the file itself for the lock
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            if _is_at(descriptor, lock):
                lock.unlink()
        os.close(descriptor)


def _acquire(lock: Path, timeout_s: float) -> int:
    """The descriptor that holds the lock."""
    deadline_s = time.monotonic() + timeout_s
    wait_s = FIRST_WAIT_S
    while True:
        descriptor = _opened(lock)
        try:
            if _is_taken(descriptor, lock):
                return descriptor
            holder = _holder(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise UserFileError(f"failed to lock {lock}: {_reason(error)}", lock) from None
        os.close(descriptor)
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise LockHeld(
                f"timed out waiting for the writer lock at {lock}",
                lock,
                hint=f"{holder} is writing; try again when it is done",
            )
        time.sleep(min(wait_s, left_s))
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


def _opened(lock: Path) -> int:
    try:
        make_folders(lock.parent)
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    except OSError as error:
        raise UserFileError(f"failed to open the lock {lock}: {_reason(error)}", lock) from None


def _is_taken(descriptor: int, lock: Path) -> bool:
    """Take the lock if nobody has it.

    The holder before may have removed the file that was opened here: then it is a lock no more. And the
    original, with which the home may be shared, holds by the file's being there: a young one that names
    a living process is held.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    if not _is_at(descriptor, lock):
        return False
    pid = _pid_in(descriptor)
    is_young = time.time() - os.fstat(descriptor).st_mtime < LONGEST_FOREIGN_S
    return not (pid and pid != os.getpid() and is_young and _is_alive(pid))


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether this path still leads to the open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _pid_in(descriptor: int) -> int:
    """The process that the lock file names, 0 for none."""
    with contextlib.suppress(OSError):
        if (text := os.pread(descriptor, 20, 0).strip()).isdigit():
            return int(text)
    return 0


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _holder(descriptor: int) -> str:
    pid = _pid_in(descriptor)
    return f"process {pid}" if pid else "another process"


def make_folders(folder: Path) -> None:
    """Make a folder and those above it that are missing, each for its owner alone.

    Raises:
        OSError: one of them cannot be made.
    """
    missing = [folder]
    while not missing[-1].is_dir() and missing[-1].parent != missing[-1]:
        missing.append(missing[-1].parent)
    for one in reversed(missing):
        if not one.is_dir():
            one.mkdir(mode=FOLDER_MODE, exist_ok=True)


def flush_folder(folder: Path) -> None:
    """Make what was created or renamed in a folder survive a loss of power.

    Raises:
        OSError: it cannot be opened or flushed.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
