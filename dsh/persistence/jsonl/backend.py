"""The JSONL backend: one append-only file a session. Synchronous; the coordinator calls it in its worker.

A log in either encoding is read, and appended to in the encoding it has. What a run that only writes does not
need is imported where it is used.
"""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from dsh.persistence.backend import (
    Listing,
    Packed,
    RawLog,
    StorageFigures,
    StoredProblem,
    StoredSession,
    Tail,
)
from dsh.persistence.error import PersistenceError, SessionCollision, SessionCorruption
from dsh.persistence.files import Files
from dsh.persistence.jsonl import writer
from dsh.persistence.jsonl.layout import Encoding, log_path, session_dir
from dsh.persistence.jsonl.lookup import folders_of, logs_in, logs_of, projects, stored_ids
from dsh.persistence.jsonl.open_log import OpenLog
from dsh.persistence.jsonl.stable import revision_of
from dsh.persistence.lock import owner_told
from dsh.persistence.view import build_view
from dsh.session.chunk_run import Entry
from dsh.session.header import SessionHeader

if TYPE_CHECKING:
    from dsh.persistence.jsonl.reader import StoredLog

T = TypeVar("T")

PLACES_KEPT = 1024
"""So many sessions are remembered by their place."""


class JsonlBackend:
    """`<root>/<project>/<session>/session.jsonl[.zstd]`."""

    def __init__(
        self,
        root: Path,
        *,
        encoding: Encoding = "zstd",
        pack_chunks: bool = True,
        files: Files | None = None,
    ) -> None:
        self.root = root
        self.name = f"JSONL sessions under {root}"
        self._encoding: Encoding = encoding
        self._pack_chunks = pack_chunks
        self._files = files or Files()
        self._open: dict[str, OpenLog] = {}
        self._places: dict[str, Path] = {}
        """Where logs were found; looked at before every project is, the one used last is the last."""

    # -- looking -----------------------------------------------------------------------------------

    def locate(self, header: SessionHeader) -> Path:
        """Where the log is or would be; no I/O."""
        log = self._open.get(header.id)
        return log.path if log is not None else log_path(self.root, header.id, header.cwd, self._encoding)

    def is_taken(self, header: SessionHeader) -> bool:
        """Whether a log lies where this one would: two look-ups of names."""
        try:
            return bool(logs_in(session_dir(self.root, header.id, header.cwd)))
        except OSError:  # the first write will say so
            return False

    def find(self, session_id: str) -> str | None:
        """Where a session is stored, or None. Raises as `_find`."""
        path = self._find(session_id)
        return None if path is None else str(path)

    def ids(self, prefix: str = "") -> "list[str]":
        """The ids of stored sessions that begin so, by the names of their folders."""
        return stored_ids(self.root, prefix)

    def unseen(self) -> "list[str]":
        """The projects' folders that may not be looked into."""
        return [str(project) for project in projects(self.root) if not os.access(project, os.R_OK | os.X_OK)]

    def _find(self, session_id: str) -> Path | None:
        """The stored log of a session, or None.

        Raises:
            SessionCorruption: there is more than one.
        """
        if (log := self._open.get(session_id)) is not None and log.exists:
            return log.path
        known = self._places.pop(session_id, None)
        if known is not None and logs_in(known.parent) == [known]:
            self._places[session_id] = known
            return known
        found = logs_of(self.root, session_id)
        if len(found) == 1:
            self._places[session_id] = found[0]
            while len(self._places) > PLACES_KEPT:
                del self._places[next(iter(self._places))]
        if len(found) > 1:
            places = " and ".join(str(path) for path in found)
            raise SessionCorruption(
                f"session {session_id!r} is stored more than once: {places}", path=str(found[0])
            )
        return found[0] if found else None

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, session_id: str, read: Callable[[Path], T]) -> T | None:
        """What `read` makes of a session's log, or None; also where it is deleted just now."""
        path = self._find(session_id)
        if path is None:
            return None
        try:
            return read(path)
        except FileNotFoundError:
            if os.path.lexists(path):
                raise
            return None

    def load(self, session_id: str) -> "StoredLog | None":
        """The stored log of a session, or None.

        Raises:
            SessionCorruption, SessionFormatUnsupported, OSError
        """
        return self._read(session_id, lambda path: self._load(path, session_id))

    def _load(self, path: Path, session_id: str) -> "StoredLog":
        from dsh.persistence.jsonl.reader import read_log

        stored = read_log(path)
        self._check_identity(stored.header, path, session_id)
        return stored

    def load_from(self, session_id: str, seq: int) -> Tail | None:
        """The stored events from `seq` on, or None. Raises as `load`."""
        from dsh.persistence.jsonl.suffix import read_suffix

        def read(path: Path) -> Tail:
            tail = read_suffix(path, seq)
            self._check_identity(tail.header, path, session_id)
            return tail

        return self._read(session_id, read)

    def revision(self, session_id: str) -> str | None:
        """The revision of the stored log, or None."""
        return self._read(session_id, lambda path: revision_of(path.stat()))

    def writer(self, session_id: str) -> str | None:
        """Who has the stored log open for writing, or None."""
        path = self._find(session_id)
        return None if path is None else owner_told(path.parent)

    def read_raw(self, session_id: str) -> RawLog | None:
        """The committed text of the stored log, or None. The version is not looked at."""
        from dsh.persistence.jsonl.raw import read_raw

        return self._read(session_id, lambda path: RawLog(path=path, content=read_raw(path, session_id)))

    def figures(self, session_id: str) -> StorageFigures | None:
        """What the stored log consists of, or None. Raises as `load`."""
        from dsh.persistence.jsonl.figures import figures_of

        def read(path: Path) -> StorageFigures:
            return figures_of(path, lambda header: self._check_identity(header, path, session_id))

        return self._read(session_id, read)

    def _check_identity(self, header: SessionHeader, path: Path, session_id: str | None) -> None:
        """A log's header must derive the place where it lies.

        Raises:
            SessionCorruption: it does not, or holds another id.
        """
        if session_id is not None and header.id != session_id:
            raise SessionCorruption(
                f"the header is that of session {header.id!r}, not of {session_id!r}", path=str(path), line=1
            )
        derived = session_dir(self.root, header.id, header.cwd) / path.name
        if derived != path and not (derived.exists() and derived.samefile(path)):
            raise SessionCorruption(
                f"the header of session {header.id!r} belongs at {derived}", path=str(path), line=1
            )

    def list(self) -> Listing:
        """Headers of all stored sessions; what cannot be listed becomes a problem of its own."""
        from dsh.persistence.system import problem_of

        sessions: dict[str, StoredSession] = {}
        problems: list[StoredProblem] = []
        for project in projects(self.root):
            try:
                with os.scandir(project) as entries:
                    found = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                problems.append(problem_of(str(project), error))
                continue
            for entry in found:
                path = Path(entry.path)
                try:
                    if (log := self._log_in(entry)) is not None:
                        path = log
                        self._list_log(log, sessions)
                except (PersistenceError, OSError) as error:
                    problems.append(problem_of(str(path), error))
        return Listing(tuple(sessions.values()), tuple(problems))

    def _log_in(self, entry: "os.DirEntry[str]") -> Path | None:
        """The log of the session that a name in a project's folder stands for, if it is one.

        Raises:
            SessionCorruption: there are two, or it is itself a log.
            OSError: it cannot be looked at.
        """
        if not entry.is_dir():
            if entry.name.endswith((".jsonl", ".jsonl.zstd")):
                raise SessionCorruption("a log lies where a session's folder is expected", path=entry.path)
            return None
        logs = logs_in(Path(entry.path))
        if len(logs) > 1:
            raise SessionCorruption("holds a plain and a compressed log", path=entry.path)
        return logs[0] if logs else None

    def _list_log(self, path: Path, sessions: dict[str, StoredSession]) -> None:
        from dsh.persistence.jsonl.raw import read_header

        header, found = read_header(path)
        self._check_identity(header, path, None)
        if (twin := sessions.get(header.id)) is not None:
            raise SessionCorruption(f"session {header.id!r} is also stored at {twin.place}", path=str(path))
        sessions[header.id] = StoredSession(
            header=header,
            place=str(path),
            path=path,
            revision=revision_of(found),
            size=found.st_size,
            modified_ms=found.st_mtime_ns // 1_000_000,
        )

    # -- writing -----------------------------------------------------------------------------------

    def open(self, session_id: str) -> "StoredLog | None":
        """Take the owner lock of a stored session, then read it. None when nothing is stored.

        Raises:
            SessionBusy: somebody else writes it.
            SessionCorruption, SessionFormatUnsupported, OSError: the lock is given back.
        """
        return self._read(session_id, lambda path: self._open_log(path, session_id))

    def _open_log(self, path: Path, session_id: str) -> "StoredLog":
        from dsh.persistence.jsonl.leftovers import drop_temporary

        log = OpenLog(self._files, path, self._encoding, pack_chunks=self._pack_chunks, is_stored=True)
        try:
            stored = self._load(path, session_id)
        except BaseException:
            log.rest()
            raise
        log.found(stored)
        self._open[session_id] = log
        drop_temporary(self._files, path.parent)
        return stored

    def append(self, header: SessionHeader, entries: Sequence[Entry]) -> None:
        """Store entries behind what is there, or the header and these as a new log. Durable on return.

        Raises:
            SessionBusy, SessionCollision, SessionFileChanged, UncleanTail, OSError: nothing was stored.
        """
        log = self._open.get(header.id)
        if log is None:
            path = log_path(self.root, header.id, header.cwd, self._encoding)
            writer.make_dirs(self._files, path.parent)
            log = OpenLog(self._files, path, self._encoding, pack_chunks=self._pack_chunks)
            self._open[header.id] = log
        try:
            log.append(header, entries)
        except SessionCollision:
            self.release(header.id)
            raise

    def repair(self, stored: "StoredLog", closers: Sequence[Entry], recovered: Sequence[Entry]) -> None:
        """Cut the torn tail of an open log and add closers. Raises as `OpenLog.cut` and `append`."""
        if stored.torn is not None:
            self._open[stored.header.id].cut(stored.torn, (*recovered, *closers))
        elif closers:
            self.append(stored.header, closers)

    def pack(self, session_id: str) -> Packed | None:
        """Write a stored log anew: runs joined, in few large frames. It is repaired first where it has to be.

        Its time of modification stays. Where nothing would be saved the file does.

        Raises:
            SessionBusy: somebody has it open.
            SessionCorruption, SessionFormatUnsupported, OSError: the log is as it was.
        """
        stored = self.open(session_id)
        if stored is None:
            return None
        try:
            view = build_view(stored)
            if view.needs_repair:
                self.repair(stored, view.closers, view.recovered)
            del stored, view  # as much again as what comes now
            return self._open[session_id].pack()
        finally:
            self.release(session_id)

    def rest(self, session_id: str) -> None:
        """Give the lock back but remember the file: the next append takes the lock again."""
        if (log := self._open.get(session_id)) is not None:
            log.rest()

    def release(self, session_id: str) -> None:
        """Forget an open log and give its lock back."""
        self.rest(session_id)
        self._open.pop(session_id, None)

    def delete(self, session_id: str, *, revision: str | None = None) -> bool:
        """Remove a session's folder with all that lies in it; False when no log is stored under the id.

        Raises:
            SessionBusy: somebody has it open for writing.
            SessionWritten: it has another revision than this one; nothing was deleted.
            OSError: see `erase`; it can be deleted again.
        """
        from dsh.persistence.jsonl.erase import erase

        path = self._find(session_id)
        folders = [path.parent] if path is not None else folders_of(self.root, session_id)
        for folder in folders:
            erase(self._files, folder, revision=revision)
        self._open.pop(session_id, None)
        return path is not None

    def sweep(self, before_ms: int) -> int:
        """Remove the folders of sessions whose first write or deletion was cut off. Answers how many."""
        from dsh.persistence.jsonl.leftovers import sweep

        return sweep(self._files, self.root, before_ms)

    def close(self) -> None:
        """Give every lock back."""
        for session_id in list(self._open):
            self.release(session_id)
