"""Finding stored logs by name alone: no file is opened."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from dsh.persistence.jsonl.layout import LOG_NAMES, session_id_of, session_name


def projects(root: Path) -> list[Path]:
    """The project folders under a root; none where it does not exist.

    Raises:
        OSError: the root is something else than a folder, or may not be read.
    """
    try:
        with os.scandir(root) as entries:
            return sorted(Path(entry.path) for entry in entries if _is_folder(entry))
    except FileNotFoundError:
        if root.is_symlink():  # one that leads nowhere is no root that is yet to be made
            raise
        return []


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads in a circle, or through what may not be looked at
        return False


def logs_in(folder: Path) -> list[Path]:
    """The logs in one session's folder: none, one, or by mistake one of each encoding.

    Raises:
        OSError: the folder may not be looked into.
    """
    return [path for name in LOG_NAMES.values() if _lies_there(path := folder / name)]


def _lies_there(path: Path) -> bool:
    """Whether a name is taken. `os.path.lexists` would say no wherever it may not look."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def logs_of(root: Path, session_id: str) -> list[Path]:
    """The logs stored under an id, in whatever project; one that may not be looked into holds none.

    Raises:
        OSError: the session's own folder may not be looked into.
    """
    name = session_name(session_id)
    folders = (project / name for project in projects(root))
    return [path for folder in folders if os.path.lexists(folder) for path in logs_in(folder)]


def folders_of(root: Path, session_id: str) -> list[Path]:
    """The folders of a session that are there, with a log or without."""
    name = session_name(session_id)
    return [folder for project in projects(root) if (folder := project / name).is_dir()]


def stored_ids(root: Path, prefix: str) -> list[str]:
    """The ids that begin so, sorted; with those of folders that may not be looked into."""
    names = set(_session_names(root))
    return sorted(found for name in names if (found := session_id_of(name)).startswith(prefix))


def _session_names(root: Path) -> Iterator[str]:
    """The names of the sessions' folders; a project that cannot be read hides no other."""
    for project in projects(root):
        with contextlib.suppress(OSError):
            for name in os.listdir(project):  # noqa: PTH208 -- names alone
                if _may_hold_a_log(project / name):
                    yield name


def _may_hold_a_log(folder: Path) -> bool:
    try:
        return bool(logs_in(folder))
    except OSError:
        return True
