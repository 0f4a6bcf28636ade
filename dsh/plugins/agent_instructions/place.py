"""Where instruction files lie: the directories between project and working directory, and what names them.

Paths are absolute, those of the `fs` service, and taken by their spelling. A scope names one file for the
log: its directory relative to the project root and its name, or `user-global`
(`spec/capabilities-core.md` §20).
"""

import posixpath
from collections.abc import Iterable
from typing import NamedTuple

from dsh.unicode import from_system

USER_GLOBAL = "user-global"
GLOBAL_NAME = "AGENTS.md"


class Place(NamedTuple):
    """One directory that may hold instruction files."""

    directory: str
    names: tuple[str, ...]
    """The names to look for, in order."""
    is_chosen: bool
    """The person works in it, or it is their own: where it leads by a link is their business."""
    is_global: bool = False


class Layout(NamedTuple):
    """The project as one session sees it."""

    root: str
    """Nearest ancestor of `cwd` with a marker, else `cwd`."""
    cwd: str

    @property
    def root_from_cwd(self) -> str:
        """As `baselineIdentity` says it: empty where both are one, else `..`, `../..` and so on."""
        return "" if self.root == self.cwd else _relative(self.root, self.cwd)

    def chain(self) -> tuple[str, ...]:
        """The directories from the root to the working directory."""
        out = [self.cwd]
        while out[-1] != self.root and out[-1] != posixpath.dirname(out[-1]):
            out.append(posixpath.dirname(out[-1]))
        return tuple(reversed(out))

    def below(self, path: str) -> tuple[str, ...]:
        """The directories below the working directory on the way to the file at `path`, broad to specific."""
        inside = self.cwd.rstrip("/") + "/"
        out = [posixpath.dirname(path)]
        while out[-1].startswith(inside):
            out.append(posixpath.dirname(out[-1]))
        return tuple(reversed(out[:-1]))

    def scope(self, directory: str, name: str) -> str:
        return f"{from_system(_relative(directory, self.root))}\0{name}"

    def shown(self, directory: str, name: str) -> str:
        """The path of a file as the model and people read it."""
        return from_system(posixpath.normpath(posixpath.join(_relative(directory, self.root), name)))

    def nested_of(self, scopes: Iterable[str]) -> set[str]:
        """The directories below the working directory that these scopes name."""
        out: set[str] = set()
        for scope in scopes:
            relative, _, name = scope.partition("\0")
            if name and "\0" not in name:
                out.update(self.below(posixpath.normpath(posixpath.join(self.root, relative, name)))[-1:])
        return out


def by_breadth(directories: Iterable[str]) -> list[str]:
    """Broad before specific; beside each other by name."""
    return sorted(directories, key=lambda path: (path.count("/"), path))


def usable_names(names: Iterable[str]) -> list[str]:
    """The names that can be those of a file in a directory, each once."""
    return [
        name for name in dict.fromkeys(names) if name not in ("", ".", "..") and not set(name) & set("/\0")
    ]


def resolved(path: str, cwd: str) -> str:
    """The absolute path that an argument of a tool means, by spelling alone."""
    return posixpath.normpath(posixpath.join(cwd, path.strip()))


def _relative(path: str, start: str) -> str:
    return posixpath.relpath(path, start)
