"""Finding stored logs by name alone: no file is opened."""

import os
from collections.abc import Iterator
from pathlib import Path

from dsh.persistence.jsonl.layout import LOG_NAMES, session_id_of, session_name


def projects(root: Path) -> list[Path]:
    """The project folders under a root; none where it does not exist."""
    try:
        with os.scandir(root) as entries:
            return sorted(Path(entry.path) for entry in entries if entry.is_dir())
    except FileNotFoundError:
        return []


def logs_in(folder: Path) -> list[Path]:
    """The logs in one session's folder: none, one, or by mistake one of each encoding."""
    return [path for name in LOG_NAMES.values() if os.path.lexists(path := folder / name)]


def logs_of(root: Path, session_id: str) -> list[Path]:
    """The logs stored under an id, in whatever project."""
    name = session_name(session_id)
    return [path for project in projects(root) for path in logs_in(project / name)]


def folders_of(root: Path, session_id: str) -> list[Path]:
    """The folders of a session that are there, with a log or without."""
    name = session_name(session_id)
    return [folder for project in projects(root) if (folder := project / name).is_dir()]


def stored_ids(root: Path, prefix: str) -> list[str]:
    """The ids that begin so, sorted."""
    names = {path.parent.name for path in all_logs(root)}
    return sorted(found for name in names if (found := session_id_of(name)).startswith(prefix))


def all_logs(root: Path) -> Iterator[Path]:
    """Every stored log that can be found; a folder that cannot be read hides no other."""
    for project in projects(root):
        try:
            folders = sorted(project.iterdir())
        except OSError:
            continue
        for folder in folders:
            yield from logs_in(folder)
