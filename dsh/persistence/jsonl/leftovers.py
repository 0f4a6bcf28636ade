"""What a killed process leaves that no reader ever looks at: unfinished files, folders without a log.

They may hold all that was said in a session, so they do not stay for good.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dsh.persistence.error import SessionBusy
from dsh.persistence.files import Files
from dsh.persistence.jsonl.layout import LOG_NAMES
from dsh.persistence.jsonl.lookup import projects
from dsh.persistence.lock import LOCK_NAME, OwnerLock
from dsh.persistence.projections import FILE as SIDECAR

_BEGINNINGS = tuple(f"{name}." for name in (*LOG_NAMES.values(), f".{SIDECAR}"))
_CUT = tuple(f"{name}.cut-" for name in LOG_NAMES.values())


def drop_temporary(files: Files, folder: Path) -> None:
    """Remove the unfinished files of a session whose lock the caller holds, as far as that can be done."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 -- names alone
            if _is_temporary(name):
                files.unlink(folder / name)


def sweep(files: Files, root: Path, before_ms: int) -> int:
    """Remove sessions' folders whose first write or deletion was cut off before then; answers how many.

    Whatever has a log, or anything that is not of a session's own making, stays as it is. So does what
    somebody has open, and what cannot be removed.
    """
    return sum(_remove(files, folder, before_ms) for folder in _unfinished(root, before_ms))


def _unfinished(root: Path, before_ms: int) -> Iterator[Path]:
    for project in projects(root):
        with contextlib.suppress(OSError):
            for folder in sorted(project.iterdir()):
                if not folder.is_symlink() and folder.is_dir() and _is_unfinished(folder, before_ms):
                    yield folder


def _is_unfinished(folder: Path, before_ms: int) -> bool:
    if folder.stat().st_mtime_ns // 1_000_000 >= before_ms:
        return False
    names = os.listdir(folder)  # noqa: PTH208 -- names alone
    return LOCK_NAME in names and all(
        name in (LOCK_NAME, SIDECAR) or name.startswith(_CUT) or _is_temporary(name) for name in names
    )


def _is_temporary(name: str) -> bool:
    return name.startswith(_BEGINNINGS) and name.endswith(".tmp")


def _remove(files: Files, folder: Path, before_ms: int) -> bool:
    try:
        lock = OwnerLock.acquire(folder)
    except (SessionBusy, OSError):
        return False
    try:
        if not _is_unfinished(folder, before_ms):
            return False
        for path in folder.iterdir():
            if path != lock.path:
                files.unlink(path)
        files.unlink(lock.path)
        files.remove_dir(folder)
    except OSError:
        return False
    finally:
        lock.release()
    with contextlib.suppress(OSError):
        files.remove_dir(folder.parent)
    return True
