"""Reading one stored log: bytes, then frames, then records. Nothing here changes a file.

What is read is a prefix that is whole, and how much stands behind it. Whether the records make a valid
session is decided above this module (`view.py`).
"""

import bisect
import os
import stat
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from dsh.persistence import frames
from dsh.persistence.error import PersistenceError, SessionCorruption, SessionFormatUnsupported
from dsh.persistence.files import Identity
from dsh.persistence.frames import FrameDefect
from dsh.persistence.layout import Encoding
from dsh.persistence.scan import DamagedText, Defect, LineScanner, StoredEntry
from dsh.session.error import SessionError, UnsupportedLog
from dsh.session.header import SessionHeader, header_from_line
from dsh.session.value import decode_strict

STABLE_READS = 5
"""How often a file that changes while it is read is read again before that becomes an error."""
HEADER_STEP = 8 * 1024
HEADER_LIMIT = 16 << 20
"""Longest header line that a listing reads, in bytes."""


class Torn(NamedTuple):
    """A tail that no finished turn stands behind; repair may cut it off."""

    keep: int
    """Bytes of the file that stay."""
    dropped: int
    """Bytes behind them."""
    recovered: int
    """So many of the last entries were read out of the dropped bytes and have to be written again."""
    reason: str


class StoredLog(NamedTuple):
    """A log as it lies on disk. `entries` are fresh objects that belong to the caller."""

    path: Path
    encoding: Encoding
    header: SessionHeader
    entries: list[StoredEntry]
    next_seq: int
    identity: Identity
    revision: str
    lacks_newline: bool
    """The last record that stays has no newline; the next append begins with one."""
    torn: Torn | None


def revision_of(found: os.stat_result) -> str:
    """A token that changes whenever the file may have; compare for equality only."""
    return f"{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


def read_log(path: Path) -> StoredLog:
    """Read a log, plain or compressed, whatever its name.

    Raises:
        SessionCorruption, SessionFormatUnsupported: it will not be opened; see the reason.
        OSError: it cannot be read.
    """
    data, found = read_stable(path)
    if _is_compressed(path, data):
        log = _read_frames(path, data, found)
    else:
        log = _read_plain(path, data, found)
    return log


def read_stable(path: Path) -> tuple[bytes, os.stat_result]:
    """All bytes of a file that did not change meanwhile, and its state.

    Raises:
        PersistenceError: it kept changing, or is no regular file.
    """
    for _ in range(STABLE_READS):
        with _open(path) as file:
            before = os.fstat(file.fileno())
            data = file.readall()
            after = os.fstat(file.fileno())
        if len(data) == before.st_size and revision_of(before) == revision_of(after):
            return data, after
    raise PersistenceError(
        f"{path}: the file changed during each of {STABLE_READS} attempts to read it",
        hint="another program is writing this log; try again when it has ended",
    )


def _open(path: Path) -> FileIO:
    """Open without waiting for a writer, as a pipe would make us do; only a regular file is a log."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(fd).st_mode
    if not stat.S_ISREG(mode):
        os.close(fd)
        kind = "a folder" if stat.S_ISDIR(mode) else "no regular file"
        raise SessionCorruption(f"this is {kind}, not a session log", path=str(path))
    return os.fdopen(fd, "rb", buffering=0)


def _is_compressed(path: Path, data: bytes) -> bool:
    return path.name.endswith(".zstd") or data.startswith(frames.MAGIC)


def _parse_header(path: Path, line: bytes) -> SessionHeader:
    try:
        return header_from_line(line)
    except UnsupportedLog as error:
        raise SessionFormatUnsupported(error.message, path=str(path), line=1) from error
    except SessionError as error:
        raise SessionCorruption(f"header: {error}", path=str(path), line=1, offset=0) from error


def _read_plain(path: Path, data: bytes, found: os.stat_result) -> StoredLog:
    end = data.find(b"\n") + 1
    if not end:
        reason = "the file is empty" if not data else "the header line is not complete"
        raise SessionCorruption(reason, path=str(path), line=1, offset=0)
    header = _parse_header(path, data[: end - 1])
    scanner = LineScanner()
    try:
        scanner.feed(data[end:])
        scanner.finish()
    except DamagedText as damaged:
        defect = damaged.defect
        raise SessionCorruption(
            f"{defect.reason}, and a finished turn stands behind it",
            path=str(path),
            line=defect.line,
            offset=end + defect.offset,
        ) from None
    keep = end + scanner.committed
    torn = None
    if not scanner.is_whole:
        torn = Torn(keep, len(data) - keep, 0, _reason(scanner.defect))
    return _stored(path, "plain", header, scanner, found, torn)


def _read_frames(path: Path, data: bytes, found: os.stat_result) -> StoredLog:
    try:
        scan = frames.scan_frames(data)
        if not scan.frames:
            reason = "the file is empty" if not data else "the header frame is not complete"
            raise SessionCorruption(reason, path=str(path), offset=0)
        head, *rest = scan.frames
        line = frames.decode_frame(data, head)
        if line.find(b"\n") != len(line) - 1:
            raise SessionCorruption("the first frame is not exactly one line", path=str(path), offset=0)
        header = _parse_header(path, line[:-1])
        scanner, starts = LineScanner(), [0]
        for frame in rest:
            starts.append(scanner.fed)
            scanner.feed(frames.decode_frame(data, frame))
        scanner.finish()
    except FrameDefect as defect:
        raise SessionCorruption(
            f"zstd frame: {defect.reason}", path=str(path), offset=defect.offset
        ) from None
    except DamagedText as damaged:
        raise _in_frames(path, damaged.defect, scan.frames, starts) from None
    if not scanner.is_whole and scanner.defect is not None:
        raise _in_frames(path, scanner.defect, scan.frames, starts)
    torn = None if scan.torn_start is None else _read_torn(path, data, scan.torn_start, scanner)
    return _stored(path, "zstd", header, scanner, found, torn)


def _read_torn(path: Path, data: bytes, start: int, scanner: LineScanner) -> Torn:
    """Judge the frame that lacks its end, and take out of it what is whole."""
    if (later := frames.later_frame(data, start)) is not None:
        raise SessionCorruption(
            f"zstd frame: damaged, since it seems torn and a good frame follows at byte {later}",
            path=str(path),
            offset=start,
        )
    before = len(scanner.entries)
    lacks_newline = scanner.lacks_newline
    try:
        scanner.feed(frames.decode_torn(data, start))
        scanner.finish()
    except DamagedText as damaged:
        raise SessionCorruption(
            f"{damaged.defect.reason}, and a finished turn stands behind it",
            path=str(path),
            line=damaged.defect.line,
            offset=start,
        ) from None
    recovered = len(scanner.entries) - before
    scanner.lacks_newline = lacks_newline
    return Torn(start, len(data) - start, recovered, "the last zstd frame is incomplete")


def _in_frames(path: Path, defect: Defect, found: list[frames.Frame], starts: list[int]) -> SessionCorruption:
    """A defect in the text of complete frames, placed at the frame that holds its line."""
    frame = found[bisect.bisect_right(starts, defect.offset) - 1] if starts else found[0]
    return SessionCorruption(
        f"{defect.reason} in a complete zstd frame", path=str(path), line=defect.line, offset=frame.start
    )


def _reason(defect: Defect | None) -> str:
    return f"line {defect.line}: {defect.reason}" if defect is not None else "the last record is incomplete"


def _stored(
    path: Path,
    encoding: Encoding,
    header: SessionHeader,
    scanner: LineScanner,
    found: os.stat_result,
    torn: Torn | None,
) -> StoredLog:
    return StoredLog(
        path,
        encoding,
        header,
        scanner.entries,
        scanner.next_seq,
        Identity.of(found),
        revision_of(found),
        scanner.lacks_newline,
        torn,
    )


def read_raw(path: Path, session_id: str) -> bytes:
    """The committed text of a log, header line first, verbatim. Only the header's shape and id are checked.

    Raises:
        SessionCorruption: damaged frames, or not the header of this session.
        OSError: it cannot be read.
    """
    data, _ = read_stable(path)
    if _is_compressed(path, data):
        try:
            text = b"".join(frames.decode_frame(data, frame) for frame in frames.scan_frames(data).frames)
        except FrameDefect as defect:
            raise SessionCorruption(
                f"zstd frame: {defect.reason}", path=str(path), offset=defect.offset
            ) from None
    else:
        end = data.rfind(b"\n") + 1
        text = data if _is_object(data[end:]) else data[:end]
    try:
        header = decode_strict(text.partition(b"\n")[0])
    except SessionError as error:
        raise SessionCorruption(f"header: {error}", path=str(path), line=1, offset=0) from None
    if not isinstance(header, dict) or header.get("type") != "session" or header.get("id") != session_id:
        raise SessionCorruption(f"no header of session {session_id!r}", path=str(path), line=1, offset=0)
    return text


def _is_object(text: bytes) -> bool:
    try:
        return isinstance(decode_strict(text), dict)
    except SessionError:
        return False


def read_header(path: Path) -> tuple[SessionHeader, str]:
    """Header and revision of a log, reading no further than its first line or frame.

    Raises:
        SessionCorruption, SessionFormatUnsupported: there is no header that we understand.
        OSError: it cannot be read.
    """
    with _open(path) as file:
        revision = revision_of(os.fstat(file.fileno()))
        data = b""
        while len(data) < HEADER_LIMIT and (piece := file.read(HEADER_STEP)):
            data += piece
            line = _first_line(path, data)
            if line is not None:
                return _parse_header(path, line), revision
    reason = "the file is empty" if not data else "the header is not complete"
    raise SessionCorruption(reason, path=str(path), line=1, offset=0)


def _first_line(path: Path, data: bytes) -> bytes | None:
    if not _is_compressed(path, data):
        end = data.find(b"\n")
        return data[:end] if end >= 0 else None
    try:
        frame = frames.next_frame(data, 0)
        line = frames.decode_frame(data, frame) if frame is not None else None
    except FrameDefect as defect:
        raise SessionCorruption(f"zstd frame: {defect.reason}", path=str(path), offset=0) from None
    if line is not None and line.find(b"\n") != len(line) - 1:
        raise SessionCorruption("the first frame is not exactly one line", path=str(path), offset=0)
    return line[:-1] if line is not None else None
