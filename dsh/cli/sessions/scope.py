"""Which of the stored sessions a command is about: those of this directory, of another one, or all."""

import os
from collections.abc import Sequence
from typing import NamedTuple

from dsh.cli.sessions.recency import newest_first
from dsh.errors import UsageError
from dsh.persistence.backend import Listing, StoredSession


class Scope(NamedTuple):
    """What `--all` and `--cwd` say; with neither it is this directory."""

    everywhere: bool = False
    cwd: str = ""

    @classmethod
    def of(cls, *, everywhere: bool, cwd: str, ids: Sequence[str] | None = None) -> "Scope":
        """The scope as it was typed.

        Args:
            ids: the sessions that were named one by one instead.

        Raises:
            UsageError: more than one of the three was given.
        """
        given = [name for name, is_given in (("ids", ids), ("--all", everywhere), ("--cwd", cwd)) if is_given]
        if len(given) > 1:
            raise UsageError(f"{given[0]} and {given[1]} exclude each other", hint=f"leave out {given[1]}")
        return cls(everywhere, cwd)

    def chosen(self, listing: Listing) -> list[StoredSession]:
        """The sessions that are meant, the last written first; they belong where their header says.

        Raises:
            UsageError: this directory is meant, and it is gone.
        """
        if self.everywhere:
            return sorted(listing.sessions, key=newest_first)
        names = _names(self.cwd) if self.cwd else working_directories()
        return sorted((one for one in listing.sessions if one.header.cwd in names), key=newest_first)


def working_directories() -> frozenset[str]:
    """The names of this directory: the real one, and the one through links that the shell shows.

    Raises:
        UsageError: it is gone.
    """
    try:
        here = os.getcwd()  # noqa: PTH109 -- text, as headers have it
    except OSError:
        raise UsageError("the current directory is gone", hint="go to one that is there") from None
    shown = os.environ.get("PWD", "")
    try:
        is_here = shown.startswith("/") and os.path.samefile(shown, here)  # noqa: PTH121
    except (OSError, ValueError):
        is_here = False
    return frozenset((here, os.path.normpath(shown)) if is_here else (here,))


def _names(directory: str) -> frozenset[str]:
    """A directory as it was named, and the real one behind its links."""
    return frozenset((os.path.abspath(directory), os.path.realpath(directory)))  # noqa: PTH100
