"""The direct children of a directory, by name."""

import os

from dsh.capabilities.fs import FsDirEntry, FsError, FsTarget
from dsh.capabilities.local_fs.error import from_os
from dsh.capabilities.local_fs.path import canonical, size_of, type_of, version_of
from dsh.capabilities.local_fs.thread import Halt


def list_children(target: FsTarget, halt: Halt) -> list[FsDirEntry]:
    """Metadata of each child, links followed.

    Raises:
        FsError: `FS_NOT_FOUND`, `FS_NOT_DIRECTORY`, `FS_PERMISSION_DENIED`, `FS_IO_ERROR`, `FS_ABORTED`.
    """
    try:
        names = sorted(os.listdir(target.target_key))
    except NotADirectoryError as error:
        shown = target.display_path
        raise FsError("FS_NOT_DIRECTORY", f'cannot list "{shown}": it is not a directory') from error
    except OSError as error:
        raise from_os(error, "list", target.display_path) from error
    children = []
    for name in names:
        halt.check()
        children.append(_child(target, name))
    return children


def _child(parent: FsTarget, name: str) -> FsDirEntry:
    path = os.path.join(parent.target_key, name)
    shown = os.path.join(parent.display_path, name)
    try:
        target = FsTarget(canonical(path), shown)
        info = os.stat(path)
    except OSError:  # it vanished, or is a link that leads nowhere
        return FsDirEntry(name, "other", FsTarget(path, shown))
    return FsDirEntry(name, type_of(info), target, version=version_of(info), size=size_of(info))
