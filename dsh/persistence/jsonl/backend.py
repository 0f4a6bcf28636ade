"""The JSONL backend: one append-only file a session. Synchronous; the coordinator calls it in its worker.

A log open for writing is known by path, identity and owner lock. A log in either encoding is read, and
appended to in the encoding it has.
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

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
from dsh.persistence.files import Files, Identity
from dsh.persistence.jsonl import frames, writer
from dsh.persistence.jsonl.erase import erase
from dsh.persistence.jsonl.figures import figures_of
from dsh.persistence.jsonl.layout import LOG_NAMES, Encoding, log_path, session_dir
from dsh.persistence.jsonl.leftovers import drop_temporary, sweep
from dsh.persistence.jsonl.lookup import folders_of, logs_in, logs_of, projects, stored_ids
from dsh.persistence.jsonl.raw import read_header, read_raw, read_text
from dsh.persistence.jsonl.reader import StoredLog, read_log
from dsh.persistence.jsonl.repack import repack, same_events
from dsh.persistence.jsonl.stable import read_bytes, revision_of
from dsh.persistence.jsonl.suffix import read_suffix
from dsh.persistence.jsonl.writer import UncleanTail
from dsh.persistence.lock import OwnerLock
from dsh.persistence.system import problem_of
from dsh.persistence.view import build_view
from dsh.session.chunk_row import pack
from dsh.session.chunk_run import Entry, expand
from dsh.session.header import SessionHeader
from dsh.session.value import encode

PLACES_KEPT = 1024
"""So many sessions are remembered by their place."""

_log = logging.getLogger("dsh.session-persistence")


class _OpenLog:
    """A log this process writes: what it is known to be, and the lock on it."""

    __slots__ = ("encoding", "identity", "lacks_newline", "lock", "path", "unclean")

    def __init__(self, path: Path, encoding: Encoding, lock: OwnerLock | None) -> None:
        self.path = path
        self.encoding: Encoding = encoding
        self.lock = lock
        self.identity: Identity | None = None
        """None until the file exists."""
        self.lacks_newline = False
        self.unclean = 0
        """Bytes that a failed append may have left behind the known end."""


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
        self._open: dict[str, _OpenLog] = {}
        self._places: dict[str, Path] = {}
        """Where logs were found; looked at before every project is, the one used last is the last."""

    # -- looking -----------------------------------------------------------------------------------

    def locate(self, header: SessionHeader) -> Path:
        """Where the log is or would be; no I/O."""
        log = self._open.get(header.id)
        return log.path if log is not None else log_path(self.root, header.id, header.cwd, self._encoding)

    def is_taken(self, header: SessionHeader) -> bool:
        """Whether a log lies where this one would: two look-ups of names."""
        return bool(logs_in(session_dir(self.root, header.id, header.cwd)))

    def find(self, session_id: str) -> str | None:
        """Where a session is stored, or None. Raises as `_find`."""
        path = self._find(session_id)
        return None if path is None else str(path)

    def ids(self, prefix: str = "") -> "list[str]":
        """The ids of stored sessions that begin so, by the names of their folders."""
        return stored_ids(self.root, prefix)

    def _find(self, session_id: str) -> Path | None:
        """The stored log of a session, or None.

        Raises:
            SessionCorruption: there is more than one.
        """
        if (log := self._open.get(session_id)) is not None and log.identity is not None:
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

    def load(self, session_id: str) -> StoredLog | None:
        """The stored log of a session, or None.

        Raises:
            SessionCorruption, SessionFormatUnsupported, OSError
        """
        path = self._find(session_id)
        if path is None:
            return None
        stored = read_log(path)
        self._check_identity(stored.header, path, session_id)
        return stored

    def load_from(self, session_id: str, seq: int) -> Tail | None:
        """The stored events from `seq` on, or None. Raises as `load`."""
        path = self._find(session_id)
        if path is None:
            return None
        tail = read_suffix(path, seq)
        self._check_identity(tail.header, path, session_id)
        return tail

    def revision(self, session_id: str) -> str | None:
        """The revision of the stored log, or None."""
        path = self._find(session_id)
        return None if path is None else revision_of(path.stat())

    def read_raw(self, session_id: str) -> RawLog | None:
        """The committed text of the stored log, or None. The version is not looked at."""
        path = self._find(session_id)
        return None if path is None else RawLog(path=path, content=read_raw(path, session_id))

    def figures(self, session_id: str) -> StorageFigures | None:
        """What the stored log consists of, or None. Raises as `figures_of`."""
        path = self._find(session_id)
        return None if path is None else figures_of(path)

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

    def open(self, session_id: str) -> StoredLog | None:
        """Take the owner lock of a stored session, then read it. None when nothing is stored.

        Raises:
            SessionBusy: somebody else writes it.
            SessionCorruption, SessionFormatUnsupported, OSError: the lock is given back.
        """
        path = self._find(session_id)
        if path is None:
            return None
        lock = OwnerLock.acquire(path.parent)
        try:
            stored = read_log(path)
            self._check_identity(stored.header, path, session_id)
        except BaseException:
            lock.release()
            raise
        log = _OpenLog(path, stored.encoding, lock)
        log.identity = stored.identity
        log.lacks_newline = stored.lacks_newline
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
            log = self._reserve(header)
        elif log.lock is None:
            log.lock = OwnerLock.acquire(log.path.parent)
        text = self._text(entries)
        if log.identity is None:
            log.identity = self._create(log, header, text)
            return
        data = self._encoded(log.encoding, b"\n" + text if log.lacks_newline else text)
        try:
            log.identity = writer.append(self._files, log.path, data, log.identity, unclean=log.unclean)
        except UncleanTail as error:
            log.unclean = max(log.unclean, error.written)
            raise
        log.lacks_newline, log.unclean = False, 0

    def _reserve(self, header: SessionHeader) -> _OpenLog:
        path = log_path(self.root, header.id, header.cwd, self._encoding)
        writer.make_dirs(self._files, path.parent)
        log = _OpenLog(path, self._encoding, OwnerLock.acquire(path.parent))
        self._open[header.id] = log
        return log

    def _create(self, log: _OpenLog, header: SessionHeader, text: bytes) -> Identity:
        """The header is a frame of its own, the first batch another; both become visible at once."""
        line = encode(header.to_line()) + b"\n"
        data = self._encoded(log.encoding, line) + (self._encoded(log.encoding, text) if text else b"")
        other = log.path.with_name(LOG_NAMES["plain" if log.encoding == "zstd" else "zstd"])
        try:
            return writer.create(self._files, log.path, data, session_id=header.id, other=other)
        except SessionCollision:
            self.release(header.id)
            raise

    def repair(self, stored: StoredLog, closers: Sequence[Entry], recovered: Sequence[Entry]) -> None:
        """Cut the torn tail of an open log and add closers. The bytes cut off are kept beside it.

        With a tail the file is replaced as a whole, so that a crash leaves either the old one or the new.

        Raises:
            SessionFileChanged, OSError: the log is as it was.
        """
        if stored.torn is None:
            if closers:
                self.append(stored.header, closers)
            return
        log = self._open[stored.header.id]
        assert log.identity is not None
        data, found = read_bytes(log.path)
        if Identity.of(found) != log.identity:
            raise SessionCorruption("the log changed while it was being repaired", path=str(log.path))
        keep, tail = data[: stored.torn.keep], data[stored.torn.keep :]
        aside = writer.keep_aside(self._files, log.path, tail, stored.torn.keep)
        text = self._text((*recovered, *closers))
        if text:
            keep += self._encoded(log.encoding, b"\n" + text if log.lacks_newline else text)
            log.lacks_newline = False
        log.identity = writer.replace(self._files, log.path, keep, log.identity)
        _log.warning(
            "%s: %s; %d bytes were cut off at byte %d and kept in %s",
            log.path,
            stored.torn.reason,
            len(tail),
            stored.torn.keep,
            aside.name,
        )

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
            return self._pack(self._open[session_id])
        finally:
            self.release(session_id)

    def _pack(self, log: _OpenLog) -> Packed:
        assert log.identity is not None
        old = read_text(log.path)
        line, _, records = old.content.partition(b"\n")
        batches = repack(records)
        data = b"".join(self._encoded(log.encoding, text) for text in (line + b"\n", *batches))
        packed = Packed(before=old.stored_bytes, after=len(data))
        if packed.after >= packed.before:
            return Packed(packed.before, packed.before)
        if not same_events(records, b"".join(batches)):
            raise SessionCorruption(
                "packing would change its events; it was left as it is", path=str(log.path)
            )
        writer.replace(self._files, log.path, data, log.identity, written_ns=log.path.stat().st_mtime_ns)
        return packed

    def rest(self, session_id: str) -> None:
        """Give the lock back but remember the file: the next append takes the lock again."""
        log = self._open.get(session_id)
        if log is not None and log.lock is not None:
            log.lock.release()
            log.lock = None

    def release(self, session_id: str) -> None:
        """Forget an open log and give its lock back."""
        self.rest(session_id)
        self._open.pop(session_id, None)

    def delete(self, session_id: str) -> bool:
        """Remove a session's folder with all that lies in it; False when no log is stored under the id.

        Raises:
            SessionBusy: somebody has it open for writing.
            OSError: see `erase`; it can be deleted again.
        """
        path = self._find(session_id)
        folders = [path.parent] if path is not None else folders_of(self.root, session_id)
        for folder in folders:
            erase(self._files, folder)
        self._open.pop(session_id, None)
        return path is not None

    def sweep(self, before_ms: int) -> int:
        """Remove the folders of sessions whose first write or deletion was cut off. Answers how many."""
        return sweep(self._files, self.root, before_ms)

    def close(self) -> None:
        """Give every lock back."""
        for session_id in list(self._open):
            self.release(session_id)

    def _text(self, entries: Sequence[Entry]) -> bytes:
        rows = pack(entries) if self._pack_chunks else (event.to_json() for event in expand(entries))
        return b"".join(encode(row) + b"\n" for row in rows)

    @staticmethod
    def _encoded(encoding: Encoding, text: bytes) -> bytes:
        return frames.encode_frame(text) if encoding == "zstd" else text
