"""The file of a session database, and who may get at it (`spec/persistence.md` §7).

Logs hold prompts, sources and output of tools: the file is the user's alone, and nobody else may put another
one in its place.
"""

import os
import stat
from pathlib import Path

from dsh.persistence.error import WrongDatabase
from dsh.persistence.files import DIR_MODE, FILE_MODE, Files
from dsh.persistence.jsonl.writer import make_dirs
from dsh.persistence.sqlite.error import UnsafePath
from dsh.persistence.sqlite.schema import APPLICATION_ID, USER_VERSION

MEMORY = ":memory:"
"""The path of a database that ends with its process."""

_MAGIC = b"SQLite format 3\0"
_HEADER_BYTES = 100
_VERSION_AT, _APPLICATION_AT = 60, 68
"""Where the two numbers stand in the first bytes of a database, big-endian."""


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
        raise UnsafePath(str(path), "the file is open to others", f"take that away: chmod 600 {path}")
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


def create_folder(path: Path) -> None:
    """Make a folder beside the database, mode 0700, or check the one that is there."""
    path.mkdir(mode=DIR_MODE, exist_ok=True)
    check_folder(path)


def check_first_bytes(path: Path) -> None:
    """Refuse a file that is plainly another program's, without opening it as a database.

    Raises:
        WrongDatabase: it is none of SQLite, or its numbers are not ours.
    """
    with path.open("rb") as file:
        head = file.read(_HEADER_BYTES)
    if not head:
        return
    if not head.startswith(_MAGIC):
        raise WrongDatabase(str(path), "it is no SQLite database")
    application = int.from_bytes(head[_APPLICATION_AT : _APPLICATION_AT + 4], "big")
    version = int.from_bytes(head[_VERSION_AT : _VERSION_AT + 4], "big")
    if application not in (0, APPLICATION_ID):
        raise WrongDatabase(str(path), f"the database is another program's (application_id {application})")
    if version not in (0, USER_VERSION):
        raise WrongDatabase(
            str(path), f"the database has version {version} of the schema, expected {USER_VERSION}"
        )
