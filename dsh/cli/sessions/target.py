"""Where sessions are stored, and which of them a TARGET on the command line means.

TARGET is a path to a log file (plain or compressed), an id, or the beginning of one.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

from dsh.cli.sessions.place import Place
from dsh.composition.home import home_path
from dsh.persistence.backend import Backend, StorageFigures
from dsh.persistence.error import PersistenceError, SessionNotFound
from dsh.persistence.stored import Stored
from dsh.persistence.view import LogView, build_view

AMBIGUOUS_SHOWN = 5
"""So many candidates are named when the beginning of an id fits several sessions."""


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

    def raw(self) -> bytes:
        """The stored text, verbatim, also of a log that we refuse to interpret.

        Raises:
            RawLogUnsupported: it is not kept as text.
            LogRefusal, SessionNotFound, OSError
        """
        if self.backend is not None and self.session_id is not None:
            found = self.backend.read_raw(self.session_id)
            if found is None:
                raise SessionNotFound(self.session_id)
            return found.content
        from dsh.persistence.jsonl.raw import raw_text

        assert self.path is not None
        return raw_text(self.path)


def open_place(place: Place) -> Backend[Any]:
    """The backend where sessions are."""
    from dsh.persistence.jsonl.backend import JsonlBackend

    root = Path(place.root) if place.root else home_path() / "sessions"
    return JsonlBackend(root)


def find_log(target: str, place: Place) -> Log:
    """The log that a TARGET names.

    Raises:
        PersistenceError: nothing fits, or more than one session does.
    """
    path = Path(target)
    if os.sep in target or path.is_file():
        return Log(str(path), None, None, path)
    return find_stored(target, open_place(place))


def find_stored(target: str, backend: Backend[Any]) -> Log:
    """The stored session whose id is, or begins with, this. Raises as `find_log`."""
    ids = [target] if target and backend.find(target) is not None else backend.ids(target) if target else []
    if not ids:
        raise PersistenceError(
            f"no log {target!r}: not a file, and no session id in {backend.name} begins so",
            code="SESSION_NOT_FOUND",
        )
    if len(ids) > 1:
        names = ", ".join(ids[:AMBIGUOUS_SHOWN]) + (", …" if len(ids) > AMBIGUOUS_SHOWN else "")
        raise PersistenceError(f"{target!r} fits {len(ids)} stored sessions: {names}")
    found = backend.find(ids[0])
    is_file = found is not None and Path(found).is_file()
    return Log(found or ids[0], ids[0], backend, Path(found) if found is not None and is_file else None)
