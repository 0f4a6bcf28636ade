"""Where skills lie, by whom they were put there: the directories to look into for one working directory."""

import posixpath
from collections.abc import Sequence
from typing import NamedTuple

from dsh.capabilities.fs import FileSystem, FsError
from dsh.kernel import CancelToken


class Root(NamedTuple):
    """One directory of skills."""

    path: str
    """Absolute."""
    rank: int
    skipped: frozenset[str] = frozenset()
    """Names in it that hold none."""


PROJECT = ((".dsh/skills", 100), (".agents/skills", 200))
"""Below the project, with their ranks."""
CUSTOM_RANK = 300
HOME_RANK = 400
AGENTS_RANK = 500
BUNDLED_RANK = 600


class Roots(NamedTuple):
    """The directories that do not depend on where a session works, and whether those of its project count."""

    fixed: Sequence[Root]
    has_project: bool

    async def of(self, fs: FileSystem, cwd: str | None, signal: CancelToken | None) -> list[Root]:
        """All of them for a working directory, in the order of their ranks.

        Raises:
            FsError: the way up from the working directory cannot be seen.
        """
        project: list[Root] = []
        if self.has_project and cwd is not None and posixpath.isabs(cwd):
            top = await project_of(fs, posixpath.normpath(cwd), signal)
            project = [Root(posixpath.join(top, folder), rank) for folder, rank in PROJECT]
        seen: dict[str, Root] = {}
        for root in (*project, *self.fixed):
            seen.setdefault(root.path, root)
        return sorted(seen.values(), key=lambda root: root.rank)


async def project_of(fs: FileSystem, cwd: str, signal: CancelToken | None) -> str:
    """The nearest directory upwards that holds `.git`, else the working directory itself."""
    directory = cwd
    while True:
        try:
            if await fs.lstat(posixpath.join(directory, ".git"), signal=signal) is not None:
                return directory
        except FsError as error:
            if error.fs_code != "FS_PERMISSION_DENIED":
                raise
            return cwd
        parent = posixpath.dirname(directory)
        if parent == directory:
            return cwd
        directory = parent
