"""The file of a session database, and who may get at it (`spec/persistence.md` §7).

Logs hold prompts, sources and output of tools: the file is the user's alone, and nobody else may put another
one in its place. A file that is a database already is not opened here: closing it would give away every lock
that this process holds on it, those of SQLite too.
"""

import os
import stat
from pathlib import Path

from dsh.persistence.files import DIR_MODE, FILE_MODE, Files
from dsh.persistence.jsonl.writer import make_dirs
from dsh.persistence.sqlite.error import UnsafePath

MEMORY = ":memory:"
"""The path of a database that ends with its process."""


def check_folder(folder: Path) -> bool:
    """Whether the folder is there; if it is, it is a real one, the user's, and nobody else writes in it.

    Raises:
        UnsafePath: it is not.
        OSError: it cannot be looked at.
    """
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafePath(str(folder), "no folder of its own, a link perhaps", "name the folder it leads to")
    if found.st_uid != os.geteuid():
        raise UnsafePath(str(folder), "the folder belongs to another user", "keep sessions in one of yours")
    if found.st_mode & 0o022:
        raise UnsafePath(
            str(folder), "others may write in the folder", f"take that away: chmod go-w {folder}"
        )
    return True


def check_file(path: Path) -> os.stat_result | None:
    """What is known of the database file; None where there is none.

    Raises:
        UnsafePath: it is no regular file, a link, another user's, or open to others.
        OSError: it cannot be looked at.
    """
    if not check_folder(path.parent):
        return None
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        raise UnsafePath(str(path), "no regular file", "name the database itself, not a link or a folder")
    if found.st_uid != os.geteuid():
        raise UnsafePath(str(path), "the file belongs to another user", "keep sessions in one of yours")
    if found.st_mode & 0o077:
        raise UnsafePath(str(path), "the file is open to others", f"if it holds sessions: chmod 600 {path}")
    return found


def create_parent(path: Path) -> None:
    """Make the folder of a database, mode 0700, or check the one that is there. Raises as `check_folder`."""
    if not check_folder(path.parent):
        make_dirs(Files(), path.parent)
        check_folder(path.parent)


def create_file(path: Path) -> None:
    """Make an empty database file, mode 0600, and its folder. Raises as `check_file`."""
    create_parent(path)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE))
    except FileExistsError:
        check_file(path)
    Files().sync_dir(path.parent)


def create_folder(path: Path) -> None:
    """Make a folder beside the database, mode 0700, or check the one that is there."""
    path.mkdir(mode=DIR_MODE, exist_ok=True)
    check_folder(path)
