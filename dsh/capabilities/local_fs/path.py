"""From what somebody typed to one identity: display path, canonical key, version token."""

import os
import stat
from pathlib import PurePosixPath

from dsh.capabilities.fs import FsError, FsTarget, FsType
from dsh.capabilities.local_fs.error import os_errors


def absolute(path: str, cwd: str) -> str:
    """The absolute path by spelling alone: links stay, `..` goes lexically, `~` is an ordinary name."""
    joined = os.path.normpath(os.path.join(cwd, path))
    return "/" + joined.lstrip("/") if joined.startswith("//") else joined


def checked(path: str) -> str:
    """The path, if the system could hold a file of that name at all.

    Raises:
        FsError: `FS_NOT_FOUND` for a blank path, a NUL, or what the file system's encoding cannot spell.
    """
    if not path.strip():
        raise FsError("FS_NOT_FOUND", "the path is blank")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise FsError("FS_NOT_FOUND", f"cannot resolve {path!a}: no file can have this name") from None
    if b"\0" in encoded:
        raise FsError("FS_NOT_FOUND", f"cannot resolve {path!a}: a path cannot hold a NUL")
    return path


def locate(path: str, cwd: str) -> FsTarget:
    """The target a path means, whether it exists or not.

    Raises:
        FsError: the path leads through a file, a loop of links, or a directory that may not be searched.
    """
    shown = absolute(checked(path), cwd)
    with os_errors("resolve", shown):
        return FsTarget(canonical(shown), shown)


def canonical(path: str) -> str:
    """The real path; of a path that does not exist, the real path of what does plus the rest.

    A dangling link counts as not existing, so it is its own key.
    """
    missing: list[str] = []
    while True:
        try:
            real = os.path.realpath(path, strict=True)
            break
        except FileNotFoundError:
            path, name = os.path.split(path)
            if not name:
                raise
            missing.append(name)
    return os.path.join(real, *reversed(missing))


def is_within(root: str, path: str) -> bool:
    """Whether an absolute normal path is `root` or lies below it, by spelling."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def file_url(key: str) -> str:
    return PurePosixPath(key).as_uri()


def version_of(info: os.stat_result) -> str:
    """The version token: device, inode, size and both times in nanoseconds."""
    return f"{info.st_dev}:{info.st_ino}:{info.st_size}:{info.st_mtime_ns}:{info.st_ctime_ns}"


def type_of(info: os.stat_result) -> FsType:
    if stat.S_ISREG(info.st_mode):
        return "file"
    return "directory" if stat.S_ISDIR(info.st_mode) else "other"


def size_of(info: os.stat_result) -> int | None:
    return info.st_size if stat.S_ISREG(info.st_mode) else None
