"""One log that this process writes: what its file is known to be, and everything that is done to it."""

import itertools
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsh.persistence.backend import Packed
from dsh.persistence.error import SessionCorruption
from dsh.persistence.files import Files, Identity
from dsh.persistence.jsonl import frames, writer
from dsh.persistence.jsonl.frames import BATCH_TEXT, Frame
from dsh.persistence.jsonl.layout import LOG_NAMES, Encoding
from dsh.persistence.jsonl.stable import read_bytes
from dsh.persistence.jsonl.writer import UncleanCreation, UncleanTail
from dsh.persistence.lock import OwnerLock
from dsh.session.chunk_row import pack
from dsh.session.chunk_run import Entry, expand
from dsh.session.header import SessionHeader
from dsh.session.value import encode

if TYPE_CHECKING:
    from dsh.persistence.jsonl.reader import StoredLog, TornBytes

_log = logging.getLogger("dsh.session-persistence")


class OpenLog:
    """State: the file as we left it, and the owner lock, which may be given back for a while."""

    def __init__(
        self, files: Files, path: Path, encoding: Encoding, *, pack_chunks: bool, is_stored: bool = False
    ) -> None:
        """Takes the lock of a log that may not exist yet; its folder must.

        Raises:
            SessionBusy: somebody else writes it.
            OSError: it cannot be locked.
        """
        self._files = files
        self.path = path
        self._encoding: Encoding = encoding
        self._pack_chunks = pack_chunks
        self._lock: OwnerLock | None = OwnerLock.acquire(path.parent)
        self._identity: Identity | None = None
        """None until the file exists."""
        self._is_as_found = is_stored
        """It is stored, and nothing was written here: a lock that is new need not stay either."""
        self._lacks_newline = False
        self._left: Identity | None = None
        """The file that a failed creation may have left."""
        self._unclean = 0
        """Bytes that a failed append may have left behind the known end."""

    @property
    def exists(self) -> bool:
        """Something is stored."""
        return self._identity is not None

    def found(self, stored: "StoredLog") -> None:
        """The file is there, and this is what was read of it under the lock."""
        self._encoding = stored.encoding
        self._identity = stored.identity
        self._lacks_newline = stored.lacks_newline

    def rest(self) -> None:
        """Give the lock back; the next append takes it again."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.discard() if lock.is_new and self._is_as_found else lock.release()

    def append(self, header: SessionHeader, entries: Sequence[Entry]) -> None:
        """Store entries behind what is there, or the header and these as a new log. Raises as the backend."""
        if self._lock is None:
            self._lock = OwnerLock.acquire(self.path.parent)
        self._is_as_found = False
        if self._identity is None:
            self._identity = self._create(header, entries)
            return
        text = b"".join(self._texts(entries))
        data = self._encoded(b"\n" + text if self._lacks_newline else text)
        try:
            self._identity = writer.append(
                self._files, self.path, data, self._identity, unclean=self._unclean
            )
        except UncleanTail as error:
            self._unclean = max(self._unclean, error.written)
            raise
        self._lacks_newline, self._unclean = False, 0

    def _create(self, header: SessionHeader, entries: Sequence[Entry]) -> Identity:
        """The header is a frame of its own, the first batch others; all become visible at once."""
        line = encode(header.to_line()) + b"\n"
        data = map(self._encoded, itertools.chain((line,), self._texts(entries)))
        other = self.path.with_name(LOG_NAMES["plain" if self._encoding == "zstd" else "zstd"])
        if self._left is not None:
            writer.take_back(self._files, self.path, self._left)
            self._left = None
        try:
            return writer.create(self._files, self.path, data, session_id=header.id, other=other)
        except UncleanCreation as error:
            self._left = error.identity
            raise

    def cut(self, torn: "TornBytes", entries: Sequence[Entry]) -> None:
        """Put entries in the place of a torn tail. The bytes cut off are kept beside the log.

        The file is replaced as a whole, so that a crash leaves either the old one or the new.

        Raises:
            SessionFileChanged: the log is as it was.
            OSError: it is as it was; or, where only the last sync failed, as it should be, not yet for good.
        """
        assert self._identity is not None
        self._is_as_found = False
        data, found = read_bytes(self.path)
        if Identity.of(found) != self._identity:
            raise SessionCorruption("the log changed while it was being repaired", path=str(self.path))
        keep, tail = data[: torn.keep], data[torn.keep :]
        aside = writer.keep_aside(self._files, self.path, tail, torn.keep)
        text = b"".join(self._texts(entries))
        lacks_newline = self._lacks_newline
        if text:
            keep += self._encoded(b"\n" + text if lacks_newline else text)
            lacks_newline = False
        self._identity = writer.replace(self._files, self.path, (keep,), self._identity)
        self._lacks_newline = lacks_newline
        self._files.sync_dir(self.path.parent)
        _log.warning(
            "%s: %s; %d bytes were cut off at byte %d and kept in %s",
            self.path,
            torn.reason,
            len(tail),
            torn.keep,
            aside.name,
        )

    def pack(self) -> Packed:
        """Write the log anew: runs joined, in few large frames. Where nothing would be saved it stays.

        Its time of modification stays.

        Raises:
            SessionCorruption, SessionFileChanged: the log is as it was.
            OSError: see `cut`.
        """
        from dsh.persistence.jsonl.raw import read_text
        from dsh.persistence.jsonl.repack import pieces_of, repack, same_events

        assert self._identity is not None
        old = read_text(self.path)
        head = old.content.index(b"\n") + 1
        batches = repack(pieces_of(old.content, head))
        data = [*map(self._encoded, itertools.chain((old.content[:head],), batches))]
        packed = Packed(before=old.stored_bytes, after=sum(map(len, data)))
        if packed.after >= packed.before:
            return Packed(packed.before, packed.before)
        if not same_events(pieces_of(old.content, head), map(self._decoded, data[1:])):
            raise SessionCorruption(
                "packing would change its events; it was left as it is", path=str(self.path)
            )
        self._is_as_found = False
        written_ns = self.path.stat().st_mtime_ns
        self._identity = writer.replace(self._files, self.path, data, self._identity, written_ns=written_ns)
        self._files.sync_dir(self.path.parent)
        return packed

    def _texts(self, entries: Sequence[Entry]) -> Iterator[bytes]:
        """The rows of a batch as text, in pieces of about `BATCH_TEXT` bytes; none without entries."""
        rows = pack(entries) if self._pack_chunks else (event.to_json() for event in expand(entries))
        lines: list[bytes] = []
        size = 0
        for row in rows:
            lines.append(encode(row) + b"\n")
            size += len(lines[-1])
            if size >= BATCH_TEXT:
                yield b"".join(lines)
                lines, size = [], 0
        if lines:
            yield b"".join(lines)

    def _encoded(self, text: bytes) -> bytes:
        return frames.encode_frame(text) if self._encoding == "zstd" else text

    def _decoded(self, data: bytes) -> bytes:
        return frames.decode_frame(data, Frame(0, len(data), True)) if self._encoding == "zstd" else data
