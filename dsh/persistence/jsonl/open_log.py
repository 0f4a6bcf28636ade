"""One log that this process writes: what its file is known to be, and everything that is done to it."""

import logging
from collections.abc import Sequence
from pathlib import Path

from dsh.persistence.backend import Packed
from dsh.persistence.error import SessionCorruption
from dsh.persistence.files import Files, Identity
from dsh.persistence.jsonl import frames, writer
from dsh.persistence.jsonl.layout import LOG_NAMES, Encoding
from dsh.persistence.jsonl.raw import read_text
from dsh.persistence.jsonl.reader import StoredLog, TornBytes
from dsh.persistence.jsonl.repack import repack, same_events
from dsh.persistence.jsonl.stable import read_bytes
from dsh.persistence.jsonl.writer import UncleanTail
from dsh.persistence.lock import OwnerLock
from dsh.session.chunk_row import pack
from dsh.session.chunk_run import Entry, expand
from dsh.session.header import SessionHeader
from dsh.session.value import encode

_log = logging.getLogger("dsh.session-persistence")


class OpenLog:
    """State: the file as we left it, and the owner lock, which may be given back for a while."""

    def __init__(self, files: Files, path: Path, encoding: Encoding, *, pack_chunks: bool) -> None:
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
        self._lacks_newline = False
        self._unclean = 0
        """Bytes that a failed append may have left behind the known end."""

    @property
    def exists(self) -> bool:
        """Something is stored."""
        return self._identity is not None

    def found(self, stored: StoredLog) -> None:
        """The file is there, and this is what was read of it under the lock."""
        self._encoding = stored.encoding
        self._identity = stored.identity
        self._lacks_newline = stored.lacks_newline

    def rest(self) -> None:
        """Give the lock back; the next append takes it again."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def append(self, header: SessionHeader, entries: Sequence[Entry]) -> None:
        """Store entries behind what is there, or the header and these as a new log. Raises as the backend."""
        if self._lock is None:
            self._lock = OwnerLock.acquire(self.path.parent)
        text = self._text(entries)
        if self._identity is None:
            self._identity = self._create(header, text)
            return
        data = self._encoded(b"\n" + text if self._lacks_newline else text)
        try:
            self._identity = writer.append(
                self._files, self.path, data, self._identity, unclean=self._unclean
            )
        except UncleanTail as error:
            self._unclean = max(self._unclean, error.written)
            raise
        self._lacks_newline, self._unclean = False, 0

    def _create(self, header: SessionHeader, text: bytes) -> Identity:
        """The header is a frame of its own, the first batch another; both become visible at once."""
        line = encode(header.to_line()) + b"\n"
        data = self._encoded(line) + (self._encoded(text) if text else b"")
        other = self.path.with_name(LOG_NAMES["plain" if self._encoding == "zstd" else "zstd"])
        return writer.create(self._files, self.path, data, session_id=header.id, other=other)

    def cut(self, torn: TornBytes, entries: Sequence[Entry]) -> None:
        """Put entries in the place of a torn tail. The bytes cut off are kept beside the log.

        The file is replaced as a whole, so that a crash leaves either the old one or the new.

        Raises:
            SessionFileChanged, OSError: the log is as it was.
        """
        assert self._identity is not None
        data, found = read_bytes(self.path)
        if Identity.of(found) != self._identity:
            raise SessionCorruption("the log changed while it was being repaired", path=str(self.path))
        keep, tail = data[: torn.keep], data[torn.keep :]
        aside = writer.keep_aside(self._files, self.path, tail, torn.keep)
        text = self._text(entries)
        lacks_newline = self._lacks_newline
        if text:
            keep += self._encoded(b"\n" + text if lacks_newline else text)
            lacks_newline = False
        self._identity = writer.replace(self._files, self.path, keep, self._identity)
        self._lacks_newline = lacks_newline
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
            SessionCorruption, SessionFileChanged, OSError: the log is as it was.
        """
        assert self._identity is not None
        old = read_text(self.path)
        line, _, records = old.content.partition(b"\n")
        batches = repack(records)
        data = b"".join(map(self._encoded, (line + b"\n", *batches)))
        packed = Packed(before=old.stored_bytes, after=len(data))
        if packed.after >= packed.before:
            return Packed(packed.before, packed.before)
        if not same_events(records, b"".join(batches)):
            raise SessionCorruption(
                "packing would change its events; it was left as it is", path=str(self.path)
            )
        written_ns = self.path.stat().st_mtime_ns
        self._identity = writer.replace(self._files, self.path, data, self._identity, written_ns=written_ns)
        return packed

    def _text(self, entries: Sequence[Entry]) -> bytes:
        rows = pack(entries) if self._pack_chunks else (event.to_json() for event in expand(entries))
        return b"".join(encode(row) + b"\n" for row in rows)

    def _encoded(self, text: bytes) -> bytes:
        return frames.encode_frame(text) if self._encoding == "zstd" else text
