"""Reading one stored log: bytes, then frames, then records. Nothing here changes a file.

The text passes through in pieces and each record goes on to the check of the whole at once, so that no more
is held than the log itself. What is read is a prefix that is whole, and how much stands behind it; whether
it makes a valid session is said by `view.py`.
"""

import bisect
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from dsh.persistence.error import SessionCorruption
from dsh.persistence.files import Identity
from dsh.persistence.jsonl import frames
from dsh.persistence.jsonl.frames import Frame, FrameDefect
from dsh.persistence.jsonl.layout import Encoding
from dsh.persistence.jsonl.raw import (
    HEADER_LIMIT,
    damaged_frame,
    frames_in,
    header_of_frame,
    incomplete_header,
    is_compressed,
    parse_header,
)
from dsh.persistence.jsonl.scan import DamagedText, Defect, LineScanner
from dsh.persistence.jsonl.seek import find_frame, find_line
from dsh.persistence.jsonl.stable import STEP, pieces, read_stably, revision_of
from dsh.persistence.stored import Stored, Torn
from dsh.session.chunk_run import ChunkRun
from dsh.session.header import SessionHeader
from dsh.session.restore import Restorer
from dsh.session.value import JsonObject


class TornBytes(Torn, frozen=True, kw_only=True):
    """The end of a file."""

    keep: int
    """Bytes of the file that stay."""
    dropped: int
    """Bytes behind them."""

    @property
    def extent(self) -> str:
        return f"{self.dropped} bytes from byte {self.keep} on"


class StoredLog(Stored, frozen=True, kw_only=True):
    """A log as it lies on disk."""

    path: Path
    encoding: Encoding
    identity: Identity
    lacks_newline: bool
    """The last record that stays has no newline; the next append begins with one."""
    torn: TornBytes | None


def read_log(path: Path) -> StoredLog:
    """Read a log, plain or compressed, whatever its name; one that grows meanwhile as it was at first.

    Raises:
        SessionCorruption, SessionFormatUnsupported: it will not be opened; see the reason.
        PersistenceError: it kept changing while it was read.
        OSError: it cannot be read.
    """
    return read_stably(path, functools.partial(_read, path), may_grow=lambda log: log.torn is None)


def _read(path: Path, file: FileIO, found: os.stat_result) -> StoredLog:
    read = scan_log(path, file, found, Restorer)
    return StoredLog(
        place=str(path),
        path=path,
        encoding=read.encoding,
        header=read.header,
        content=read.sink,
        next_seq=read.next_seq,
        identity=Identity.of(found),
        revision=revision_of(found),
        lacks_newline=read.lacks_newline,
        torn=read.torn,
    )


class Sink(Protocol):
    """Gets the records of a log, each as `scan.Take` says."""

    def take(self, entry: JsonObject | ChunkRun, line: bytes, /) -> None: ...


S = TypeVar("S", bound=Sink)


class Scanned(NamedTuple, Generic[S]):
    """What a log consists of; its records are in the sink."""

    header: SessionHeader
    header_bytes: int
    """Size of its line, with the newline."""
    sink: S
    encoding: Encoding
    next_seq: int
    lacks_newline: bool
    torn: TornBytes | None


def scan_log(
    path: Path, file: FileIO, found: os.stat_result, sink_for: Callable[[SessionHeader], S], *, seek: int = 0
) -> Scanned[S]:
    """Pass the records of an open file on.

    Args:
        sink_for: makes what gets them.
        seek: records that end before this seq may be left out, unread and unchecked.

    Raises:
        SessionCorruption, SessionFormatUnsupported, OSError: as `read_log`. With `seek`, its line may be
            counted from elsewhere.
    """
    rest = pieces(file, found.st_size)
    first = next(rest, b"")
    if is_compressed(path, first):
        return _scan_frames(path, frames_in(path, first, rest), found.st_size, sink_for, seek)
    return _scan_plain(path, file, found.st_size, itertools.chain((first,), rest), sink_for, seek)


class _Reading(Generic[S]):
    """What both forms share: the header, who gets the records, the scan that feeds it."""

    def __init__(
        self, path: Path, encoding: Encoding, line: bytes, sink_for: Callable[[SessionHeader], S]
    ) -> None:
        self.path, self.encoding = path, encoding
        self.header, self._header_bytes = parse_header(path, line), len(line) + 1
        self.sink = sink_for(self.header)
        self.scanner = LineScanner(self.sink.take)

    def begin_at(self, seq: int) -> None:
        """Take it for granted that the records in front of this seq are whole."""
        self.scanner = LineScanner(self.sink.take, first_seq=seq)

    def scanned(self, torn: TornBytes | None, *, lacks_newline: bool) -> Scanned[S]:
        return Scanned(
            self.header,
            self._header_bytes,
            self.sink,
            self.encoding,
            self.scanner.next_seq,
            lacks_newline,
            torn,
        )

    def damaged(self, defect: Defect, offset: int) -> SessionCorruption:
        return SessionCorruption(defect.reason, path=str(self.path), line=defect.line, offset=offset)


def _scan_plain(
    path: Path,
    file: FileIO,
    size: int,
    text: Iterator[bytes],
    sink_for: Callable[[SessionHeader], S],
    seek: int,
) -> Scanned[S]:
    head: list[bytes] = []
    for piece in text:
        head.append(piece)
        if b"\n" in piece or len(head) * STEP >= HEADER_LIMIT:
            break
    line, newline, rest = b"".join(head).partition(b"\n")
    if not newline:
        raise incomplete_header(path, line)
    reading = _Reading(path, "plain", line, sink_for)
    end = len(line) + 1
    if seek and (start := find_line(file, end, size, seek)) is not None:
        end, rest = start.at, b""
        reading.begin_at(start.seq)
        file.seek(end)
        text = pieces(file, size - end)
    scanner = reading.scanner
    try:
        scanner.feed(rest)
        for piece in text:
            scanner.feed(piece)
        scanner.finish()
    except DamagedText as damaged:
        raise reading.damaged(damaged.defect, end + damaged.defect.offset) from None
    torn = None
    if not scanner.is_whole:
        dropped = scanner.fed - scanner.committed
        torn = TornBytes(keep=end + scanner.committed, dropped=dropped, reason=_reason(scanner.defect))
    return reading.scanned(torn, lacks_newline=scanner.lacks_newline)


def _scan_frames(
    path: Path, data: bytes, size: int, sink_for: Callable[[SessionHeader], S], seek: int
) -> Scanned[S]:
    """`data` is the file without the NUL bytes that it may end with, `size` with them."""
    try:
        scan = frames.scan_frames(data)
        if not scan.frames:
            raise incomplete_header(path, data)
        head, *rest = scan.frames
        reading = _Reading(path, "zstd", header_of_frame(path, data, head), sink_for)
        if seek and (start := find_frame(data, rest, seek)) is not None:
            rest = rest[start.at :]
            reading.begin_at(start.seq)
        scanner, starts = reading.scanner, [0]
        for frame in rest:
            starts.append(scanner.fed)
            for piece in frames.decode_pieces(data, frame):
                scanner.feed(piece)
                if scanner.defect is not None:
                    raise _in_frames(path, scanner.defect, [head, *rest], starts)
        scanner.finish()
    except FrameDefect as defect:
        raise damaged_frame(path, defect) from None
    except DamagedText as damaged:
        raise _in_frames(path, damaged.defect, [head, *rest], starts) from None
    if not scanner.is_whole and scanner.defect is not None:
        raise _in_frames(path, scanner.defect, [head, *rest], starts)
    lacks_newline = scanner.lacks_newline
    torn = None if scan.torn_start is None else _read_torn(reading, data, size, scan.torn_start)
    return reading.scanned(torn, lacks_newline=lacks_newline)


def _read_torn(reading: _Reading[S], data: bytes, size: int, start: int) -> TornBytes:
    """Judge the frame that lacks its end, and take out of it what is whole."""
    if (later := frames.later_frame(data, start)) is not None:
        raise SessionCorruption(
            f"zstd frame: damaged, since it seems torn and a good frame follows at byte {later}",
            path=str(reading.path),
            offset=start,
        )
    scanner = reading.scanner
    before = scanner.next_seq
    try:
        for piece in frames.decode_torn(data, start):
            scanner.feed(piece)
        scanner.finish()
    except DamagedText as damaged:
        raise reading.damaged(damaged.defect, start) from None
    return TornBytes(
        keep=start,
        dropped=size - start,
        recovered=scanner.next_seq - before,
        reason="the last zstd frame is incomplete",
    )


def _in_frames(path: Path, defect: Defect, found: list[Frame], starts: list[int]) -> SessionCorruption:
    """A defect in the text of complete frames, placed at the frame that holds its line."""
    frame = found[bisect.bisect_right(starts, defect.offset) - 1] if starts else found[0]
    return SessionCorruption(
        f"in a complete zstd frame: {defect.reason}", path=str(path), line=defect.line, offset=frame.start
    )


def _reason(defect: Defect | None) -> str:
    return f"line {defect.line}: {defect.reason}" if defect is not None else "the last record is incomplete"
