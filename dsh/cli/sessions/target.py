"""Where sessions are stored, and which of them a TARGET on the command line means.

TARGET is a path to a log file (plain or compressed), an id, the beginning of one, with or without `session-`
in front, or `last`: the newest session of this directory.
"""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dsh.cli.sessions.event_types import know_plugin_types
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.recency import newest_first
from dsh.cli.sessions.scope import working_directories
from dsh.cli.sessions.whereabouts import open_place
from dsh.persistence.backend import Backend, StorageFigures
from dsh.persistence.error import PersistenceError, SessionNotFound
from dsh.persistence.stored import Stored
from dsh.persistence.view import LogView, build_view

AMBIGUOUS_SHOWN = 5
"""So many candidates are named when the beginning of an id fits several sessions."""
TARGET_SHOWN = 200
"""Characters of a TARGET that are repeated in a message."""
LAST = "last"
ID_PREFIX = "session-"
"""What the ids that dsh makes up begin with; it need not be typed."""


class Log(NamedTuple):
    """One stored session: in a backend, or a file that lies anywhere and is only read."""

    place: str
    """For messages."""
    session_id: str | None
    """None for a file."""
    backend: Backend[Any] | None
    path: Path | None
    """The file that holds it; None in a database."""

    def stored(self) -> Stored:
        """What is stored, not yet checked as a session.

        Raises:
            LogRefusal, SessionNotFound, OSError
        """
        know_plugin_types()
        if self.backend is not None and self.session_id is not None:
            stored: Stored | None = self.backend.load(self.session_id)
            if stored is None:
                raise SessionNotFound(self.session_id)
            return stored
        from dsh.persistence.jsonl.reader import read_log

        assert self.path is not None
        return read_log(self.path)

    def view(self) -> LogView:
        """The repaired view. Raises as `stored`."""
        return build_view(self.stored())

    def writer(self) -> str | None:
        """The process that has the session open, as far as that can be told without the lock."""
        if self.backend is not None and self.session_id is not None:
            return self.backend.writer(self.session_id)
        from dsh.persistence.lock import owner_told

        return None if self.path is None else owner_told(self.path.parent)

    def figures(self) -> StorageFigures:
        """What the storage consists of. Raises as `stored`."""
        if self.backend is not None and self.session_id is not None:
            found = self.backend.figures(self.session_id)
            if found is None:
                raise SessionNotFound(self.session_id)
            return found
        from dsh.persistence.jsonl.figures import figures_of

        assert self.path is not None
        return figures_of(self.path)

    def raw(self) -> Iterator[bytes]:
        """The stored text, verbatim and in pieces, also of a log that we refuse to interpret.

        Raises:
            RawLogUnsupported: it is not kept as text.
            LogRefusal, SessionNotFound, OSError: some of it only when it is reached.
        """
        if self.path is None:
            assert self.backend is not None and self.session_id is not None
            found = self.backend.read_raw(self.session_id)
            if found is None:
                raise SessionNotFound(self.session_id)
            return iter((found.content,))
        from dsh.persistence.jsonl.raw import raw_pieces

        return raw_pieces(self.path)


def find_log(target: str, place: Place) -> Log:
    """The log that a TARGET names.

    Raises:
        PersistenceError: nothing fits, or more than one session does.
        CompositionError, UsageError: as `open_place`.
    """
    is_path = os.sep in target or target in (os.curdir, os.pardir)
    if is_path or os.path.isfile(target):  # noqa: PTH113 -- False, too, for what cannot be a path
        path = Path(target)
        return Log(str(path), None, None, path)
    return find_stored(target, open_place(place), or_file=True)


def find_stored(target: str, backend: Backend[Any], *, or_file: bool = False) -> Log:
    """The stored session whose id is, or begins with, this. Raises as `find_log`.

    Args:
        or_file: a file could have been meant as well; what is said when nothing fits.
    """
    ids = _ids(target, backend)
    if not ids and target == LAST:
        return _last(backend)
    if not ids:
        no_file = ", no file is called so" if or_file else ""
        unseen = backend.unseen()
        not_seen = f"; {_several(unseen)} could not be looked into" if unseen else ""
        raise PersistenceError(
            f"no session {target!r:.{TARGET_SHOWN}}: no id in {backend.name} begins so{no_file}{not_seen}",
            code="SESSION_NOT_FOUND",
            hint=f"see who may read it: ls -ld {shlex.quote(unseen[0])}"
            if unseen
            else "dsh sessions list --all shows the sessions that are stored",
        )
    if len(ids) > 1:
        names = ", ".join(ids[:AMBIGUOUS_SHOWN]) + (", …" if len(ids) > AMBIGUOUS_SHOWN else "")
        raise PersistenceError(
            f"{target!r:.{TARGET_SHOWN}} fits {len(ids)} stored sessions: {names}",
            code="SESSION_AMBIGUOUS",
            hint="type more of the id",
        )
    return stored_log(ids[0], backend)


def _several(folders: list[str]) -> str:
    return folders[0] if len(folders) == 1 else f"{folders[0]} and {len(folders) - 1} more"


def stored_log(session_id: str, backend: Backend[Any]) -> Log:
    """A stored session by its whole id; whether it can be read is not looked at."""
    found = backend.find(session_id)
    is_file = found is not None and os.path.isfile(found)  # noqa: PTH113
    return Log(
        found or session_id, session_id, backend, Path(found) if found is not None and is_file else None
    )


def _ids(target: str, backend: Backend[Any]) -> list[str]:
    if not target:
        return []
    if backend.find(target) is not None:
        return [target]
    return backend.ids(target) or _ids_without_prefix(target, backend)


def _ids_without_prefix(target: str, backend: Backend[Any]) -> list[str]:
    return [] if target.startswith(ID_PREFIX) else backend.ids(ID_PREFIX + target)


def _last(backend: Backend[Any]) -> Log:
    """The newest session of this directory; those of child agents are left out."""
    here = working_directories()
    own = [
        stored
        for stored in backend.list().sessions
        if stored.header.cwd in here and stored.header.origin is None
    ]
    if not own:
        raise PersistenceError(
            f"no session of this directory is stored in {backend.name}",
            code="SESSION_NOT_FOUND",
            hint="dsh sessions list --all shows those of every directory",
        )
    newest = min(own, key=newest_first)
    return stored_log(newest.header.id, backend)
