"""Deleting one session: its folder with everything in it.

The log goes first, so that whatever stops the rest leaves no half of a session to be seen; the lock file goes
last, so that nobody else begins a log there meanwhile.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from dsh.persistence.error import SessionWritten
from dsh.persistence.files import Files
from dsh.persistence.jsonl.lookup import logs_in
from dsh.persistence.jsonl.stable import revision_of
from dsh.persistence.lock import LOCK_NAME, OwnerLock


def erase(files: Files, folder: Path, *, revision: str | None = None) -> None:
    """Delete the session in `folder`, and the project's folder if it was the last one there.

    Links are removed, not followed.

    Args:
        revision: what its log has to have still, if anything.

    Raises:
        SessionBusy: somebody has it open for writing; nothing was deleted.
        SessionWritten: it has another revision; nothing was deleted.
        OSError: something could not be deleted. If it is the log, all is still there; else no log is.
    """
    lock = OwnerLock.acquire(folder)
    try:
        logs = logs_in(folder)
        for log in logs:
            if revision is not None and revision_of(log.stat()) != revision:
                if lock.is_new:
                    lock.discard()
                raise SessionWritten(str(log))
        for log in logs:
            files.unlink(log)
        if logs:
            files.sync_dir(folder)
        for path in _inside(folder):
            if path.is_dir() and not path.is_symlink():
                files.remove_dir(path)
            elif path != lock.path:
                files.unlink(path)
        files.unlink(folder / LOCK_NAME)
        if folder.is_symlink():
            files.unlink(folder)
        else:
            files.remove_dir(folder)
        files.sync_dir(folder.parent)
    finally:
        lock.release()
    with contextlib.suppress(OSError):
        files.remove_dir(folder.parent)


def _inside(folder: Path) -> Iterator[Path]:
    """What lies in a folder, the contents of each folder before it."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            yield from _inside(path)
        yield path
