"""The temporary folder of this process: one place for all that is kept only as long as the program runs.

`<temp>/dsh-tmp-<random>/`, mode 0700, made at first use and locked while the process lives, so that what a
killed process left behind is removed by the next one. Inside lie folders that trusted code writes and
confined commands may read (`shared_folder`: spilled output), and one folder for each session, which is its
`TMPDIR` in every sandbox (`design.md` §10.27). It is module-wide like the process groups: there is one for a
process, and the end of the interpreter removes it.
"""

import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "dsh-tmp-"


class _Folder:
    """Ours as long as this process holds the lock on it, which ends with the process."""

    def __init__(self) -> None:
        _sweep()
        self.pid = os.getpid()
        while True:
            self.path = Path(os.path.realpath(tempfile.mkdtemp(prefix=PREFIX)))
            try:
                self.lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:  # another process swept it before it was locked
                continue
            with contextlib.suppress(OSError):  # a file system without locks is not swept either
                fcntl.flock(self.lock, fcntl.LOCK_SH)
            if self.path.is_dir():
                return
            os.close(self.lock)


_folder: _Folder | None = None


def process_folder() -> Path:
    """The folder of this process, made now if it is not there.

    Raises:
        OSError: there is no place for it.
    """
    global _folder
    if _folder is None or _folder.pid != os.getpid() or not _folder.path.is_dir():
        _folder = _Folder()
    return _folder.path


def shared_root() -> Path:
    """What holds the shared folders."""
    return _made(process_folder() / "shared")


def shared_folder(name: str) -> Path:
    """A folder that confined commands of every session may read and none may write."""
    return _made(shared_root() / name)


def session_folder(session_id: str) -> Path:
    """The temporary folder of one session, canonical; made now if it is not there."""
    digest = hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()
    return _made(process_folder() / f"session-{digest[:12]}")


def drop_session(session_id: str) -> None:
    """Remove what one session left."""
    if _folder is not None and _folder.path.is_dir():
        shutil.rmtree(session_folder(session_id), ignore_errors=True)


def remove() -> None:
    """Remove the folder of this process, with all that is in it."""
    global _folder
    if _folder is None or _folder.pid != os.getpid():
        return
    folder, _folder = _folder, None
    shutil.rmtree(folder.path, ignore_errors=True)
    os.close(folder.lock)


atexit.register(remove)


def _made(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def _sweep() -> None:
    """Remove the folders of this user that no process holds."""
    found: list[str] = []
    with contextlib.suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        found += [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    for path in found:
        with contextlib.suppress(OSError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(lock).st_uid == os.getuid():
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
