"""Reading one stored log: bytes, then frames, then records. Nothing here changes a file.

The text passes through in pieces and each record goes on to the check of the whole at once, so that no more
is held than the log itself. What is read is a prefix that is whole, and how much stands behind it; whether
it makes a valid session is said by `view.py`.
"""

import bisect
import functools
import itertools
import os
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from dsh.persistence.error import SessionCorruption
from dsh.persistence.files import Identity
from dsh.persistence.jsonl import frames
from dsh.persistence.jsonl.frames import Frame, FrameDefect
from dsh.persistence.jsonl.layout import Encoding
from dsh.persistence.jsonl.raw import damaged_frame, header_line, is_compressed, parse_header
from dsh.persistence.jsonl.scan import DamagedText, Defect, LineScanner
from dsh.persistence.jsonl.stable import pieces, read_stably, revision_of
from dsh.persistence.stored import Stored, Torn
from dsh.session.restore import Restorer

STEP = 1 << 20
"""Bytes that are read at a time."""


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
    rest = pieces(file, found.st_size, STEP)
    first = next(rest, b"")
    if is_compressed(path, first):
        return _read_frames(path, b"".join((first, *rest)), found)
    return _read_plain(path, itertools.chain((first,), rest), found)


class _Reading:
    """What both forms share: the header, the check of the whole, the scan that feeds it."""

    def __init__(self, path: Path, encoding: Encoding, line: bytes, found: os.stat_result) -> None:
        self.path, self.encoding, self.found = path, encoding, found
        self.header = parse_header(path, line)
        self.content = Restorer(self.header)
        self.scanner = LineScanner(self.content.take)

    def stored(self, torn: TornBytes | None, *, lacks_newline: bool) -> StoredLog:
        return StoredLog(
            place=str(self.path),
            path=self.path,
            encoding=self.encoding,
            header=self.header,
            content=self.content,
            next_seq=self.scanner.next_seq,
            identity=Identity.of(self.found),
            revision=revision_of(self.found),
            lacks_newline=lacks_newline,
            torn=torn,
        )

    def damaged(self, defect: Defect, offset: int) -> SessionCorruption:
        return SessionCorruption(defect.reason, path=str(self.path), line=defect.line, offset=offset)


def _read_plain(path: Path, text: Iterator[bytes], found: os.stat_result) -> StoredLog:
    head: list[bytes] = []
    for piece in text:
        head.append(piece)
        if b"\n" in piece:
            break
    line, newline, rest = b"".join(head).partition(b"\n")
    if not newline:
        reason = "the file is empty" if not line else "the header line is not complete"
        raise SessionCorruption(reason, path=str(path), line=1, offset=0)
    reading = _Reading(path, "plain", line, found)
    end, scanner = len(line) + 1, reading.scanner
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
    return reading.stored(torn, lacks_newline=scanner.lacks_newline)


def _read_frames(path: Path, data: bytes, found: os.stat_result) -> StoredLog:
    try:
        scan = frames.scan_frames(data)
        if not scan.frames:
            reason = "the file is empty" if not data else "the header frame is not complete"
            raise SessionCorruption(reason, path=str(path), offset=0)
        head, *rest = scan.frames
        reading = _Reading(path, "zstd", header_line(path, frames.decode_frame(data, head)), found)
        scanner, starts = reading.scanner, [0]
        for frame in rest:
            starts.append(scanner.fed)
            for piece in frames.decode_pieces(data, frame):
                scanner.feed(piece)
        scanner.finish()
    except FrameDefect as defect:
        raise damaged_frame(path, defect) from None
    except DamagedText as damaged:
        raise _in_frames(path, damaged.defect, scan.frames, starts) from None
    if not scanner.is_whole and scanner.defect is not None:
        raise _in_frames(path, scanner.defect, scan.frames, starts)
    lacks_newline = scanner.lacks_newline
    torn = None if scan.torn_start is None else _read_torn(reading, data, scan.torn_start)
    return reading.stored(torn, lacks_newline=lacks_newline)


def _read_torn(reading: _Reading, data: bytes, start: int) -> TornBytes:
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
        scanner.feed(frames.decode_torn(data, start))
        scanner.finish()
    except DamagedText as damaged:
        raise reading.damaged(damaged.defect, start) from None
    return TornBytes(
        keep=start,
        dropped=len(data) - start,
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
