"""A stored log without its events: which form it has, its header, its text."""

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Iterable, Iterator
from io import FileIO
from pathlib import Path
from typing import NamedTuple

from dsh.persistence.error import NotASessionLog, OtherVersion, SessionCorruption, of_header
from dsh.persistence.jsonl import frames
from dsh.persistence.jsonl.frames import Frame, FrameDefect
from dsh.persistence.jsonl.layout import Encoding
from dsh.persistence.jsonl.scan import DamagedText, LineScanner
from dsh.persistence.jsonl.stable import open_regular, pieces, read_stably
from dsh.session.error import SessionError, UnsupportedLog
from dsh.session.header import SessionHeader, header_from_line
from dsh.session.value import decode_strict

HEADER_STEP = 8 * 1024
"""Bytes that a listing reads of each log at first; then as many again as it has, until the header ends."""
HEADER_LIMIT = 16 << 20
"""Longest header line, in bytes."""
MAX_TEXT = 1 << 30
"""Longest text that is handed out as a whole, in bytes."""

_DATABASE = b"SQLite format 3\0"
_BEGINNING = re.compile(rb'\s*\{\s*"type"\s*:\s*"session"|\(\xb5\x2f\xfd')
"""How a header begins that somebody damaged, or the frame that holds it."""


def is_compressed(path: Path, data: bytes) -> bool:
    """Whether the file that begins with `data` is a concatenation of zstd frames."""
    return path.name.endswith(".zstd") or data.startswith(frames.MAGIC)


def parse_header(path: Path, line: bytes) -> SessionHeader:
    """The header of the log at `path`.

    Raises:
        SessionCorruption, SessionFormatUnsupported: the line is none that we understand.
    """
    try:
        return header_from_line(line)
    except UnsupportedLog as error:
        raise OtherVersion(error.message, path=str(path), line=1, hint=error.hint) from error
    except SessionError as error:
        if _is_foreign(line):
            raise _not_a_log(path, line, str(error)) from error
        raise SessionCorruption(of_header(error), path=str(path), line=1, offset=0) from error


def _not_a_log(path: Path, found: bytes, reason: str = "") -> NotASessionLog:
    """The refusal of a file that is something else; `found` is what it begins with."""
    if found.startswith(_DATABASE):
        return NotASessionLog(
            "this is a SQLite database, not a session log",
            path=str(path),
            hint=f"if it holds sessions, name one by its id: --root {path} ID",
        )
    what = "the first line is not a session header"
    told = reason if reason.startswith(what) else f"{what}: {reason}" if reason else what
    return NotASessionLog(told, path=str(path), line=1, offset=0)


def incomplete_header(path: Path, found: bytes) -> SessionCorruption:
    """The refusal of a file whose header has no end; `found` is what was read of its text."""
    if not found:
        return NotASessionLog("the file is empty", path=str(path), line=1, offset=0)
    if _is_foreign(found):
        return _not_a_log(path, found, "it is not complete, and not JSON")
    if len(found) >= HEADER_LIMIT:
        reason = f"the header is longer than {HEADER_LIMIT} bytes"
        return SessionCorruption(reason, path=str(path), line=1, offset=0)
    return SessionCorruption("the header is not complete", path=str(path), line=1, offset=0)


def _is_foreign(line: bytes) -> bool:
    """Whether a first line, or its beginning, is no attempt at a session header."""
    try:
        value = decode_strict(line)
    except SessionError:
        return _BEGINNING.match(line) is None
    return not (isinstance(value, dict) and value.get("type") == "session")


def header_of_frame(path: Path, data: bytes, frame: Frame) -> bytes:
    """The header line that the first frame of a log decodes to.

    Raises:
        SessionCorruption: the frame holds more or less than one line.
        FrameDefect: it is damaged, or longer than a header may be.
    """
    frame_text = frames.decode_frame(data, frame, limit=HEADER_LIMIT)
    if frame_text.find(b"\n") != len(frame_text) - 1:
        if _is_foreign(frame_text.partition(b"\n")[0]):
            raise _not_a_log(path, b"")
        raise SessionCorruption("the first frame is not exactly one line", path=str(path), offset=0)
    return frame_text[:-1]


def damaged_frame(path: Path, defect: FrameDefect) -> SessionCorruption:
    """The refusal of a log with a wrong frame."""
    if defect.offset == 0 and defect.is_foreign:
        return NotASessionLog(
            f"this is not a compressed session log: {defect.reason}", path=str(path), offset=0
        )
    return SessionCorruption(f"zstd frame: {defect.reason}", path=str(path), offset=defect.offset)


def read_header(path: Path) -> tuple[SessionHeader, os.stat_result]:
    """Header of a log and the state of its file, reading no further than its first line or frame.

    Raises:
        SessionCorruption, SessionFormatUnsupported: there is no header that we understand.
        OSError: it cannot be read.
    """
    with open_regular(path) as file:
        found = os.fstat(file.fileno())
        data = b""
        while len(data) < HEADER_LIMIT and (piece := file.read(max(HEADER_STEP, len(data)))):
            data += piece
            line = _first_line(path, data)
            if line is not None:
                return parse_header(path, line), found
    raise incomplete_header(path, data)


def _first_line(path: Path, data: bytes) -> bytes | None:
    if not is_compressed(path, data):
        end = data.find(b"\n")
        return data[:end] if end >= 0 else None
    try:
        frame = frames.next_frame(data, 0)
        return None if frame is None else header_of_frame(path, data, frame)
    except FrameDefect as defect:
        raise damaged_frame(path, defect) from None


class LogText(NamedTuple):
    """The text of a log, decoded from its compression and otherwise verbatim, without a torn tail."""

    encoding: Encoding
    content: bytes
    stored_bytes: int
    """Size of the file, torn tail included."""


def read_text(path: Path) -> LogText:
    """The committed text of a log. Nothing but its frames is checked: it need not be one we understand.

    In a plain log of a format that we know, what a repair would cut off is left out; of any other only a last
    line that has no end.

    Raises:
        SessionCorruption: frames are damaged, there is no complete header, or the text is longer than
            `MAX_TEXT`.
        OSError: it cannot be read.
    """
    committed = read_stably(path, functools.partial(_find_text, path))
    held: list[bytes] = []
    size = 0
    for piece in committed.pieces(path):
        size += len(piece)
        if size > MAX_TEXT:
            reason = f"its text is longer than {MAX_TEXT} bytes"
            raise SessionCorruption(reason, path=str(path), hint="dsh sessions show --raw writes it as it is")
        held.append(piece)
    if not held:
        raise incomplete_header(path, b"")
    return LogText(committed.encoding, b"".join(held), committed.stored_bytes)


def raw_pieces(path: Path) -> Iterator[bytes]:
    """The text of `read_text` piece by piece, however long it is; a damaged frame is told when it is reached.

    Raises:
        SessionCorruption, OSError: as `read_text`; here what is known before the first piece.
    """
    return read_stably(path, functools.partial(_find_text, path)).pieces(path)


class _Committed(NamedTuple):
    """What of a file is text of its log."""

    encoding: Encoding
    frames: bytes
    """All of a compressed file; empty for a plain one."""
    size: int
    """So many bytes of a plain one."""
    stored_bytes: int

    def pieces(self, path: Path) -> Iterator[bytes]:
        if self.encoding == "plain":
            with open_regular(path) as file:
                yield from pieces(file, self.size)
            return
        try:
            for frame in frames.scan_frames(self.frames).frames:
                yield from frames.decode_pieces(self.frames, frame)
        except FrameDefect as defect:
            raise damaged_frame(path, defect) from None


def _find_text(path: Path, file: FileIO, found: os.stat_result) -> _Committed:
    rest = pieces(file, found.st_size)
    first = next(rest, b"")
    if not is_compressed(path, first):
        size = _committed(itertools.chain((first,), rest))
        if not size:
            raise incomplete_header(path, first)
        return _Committed("plain", b"", size, found.st_size)
    data = frames_in(path, first, rest)
    try:
        if not frames.scan_frames(data).frames:
            raise incomplete_header(path, first)
    except FrameDefect as defect:
        raise damaged_frame(path, defect) from None
    return _Committed("zstd", data, 0, found.st_size)


def frames_in(path: Path, first: bytes, rest: Iterable[bytes]) -> bytes:
    """The bytes of a compressed log, whose first ones are `first`, without a blank end.

    Of a file that does not begin with a frame no more is held than that.

    Raises:
        SessionCorruption: it has a hole.
    """
    if not first.startswith(frames.MAGIC):
        return first
    try:
        return frames.without_blank_end(itertools.chain((first,), rest))
    except FrameDefect as defect:
        raise damaged_frame(path, defect) from None


def read_raw(path: Path, session_id: str) -> bytes:
    """The committed text of a session's log, header line first. Only the header's shape and id are checked.

    Raises:
        SessionCorruption: damaged frames, or not the header of this session.
        OSError: it cannot be read.
    """
    text = read_text(path).content
    try:
        header = decode_strict(text.partition(b"\n")[0])
    except SessionError as error:
        raise SessionCorruption(of_header(error), path=str(path), line=1, offset=0) from None
    if not isinstance(header, dict) or header.get("type") != "session" or header.get("id") != session_id:
        raise SessionCorruption(f"no header of session {session_id!r}", path=str(path), line=1, offset=0)
    return text


def _committed(data: Iterable[bytes]) -> int:
    """How many bytes of a plain log are whole."""
    header: list[bytes] = []
    scanner: LineScanner | None = None
    head = lines = fed = 0
    for piece in data:
        if (last := piece.rfind(b"\n")) >= 0:
            lines = fed + last + 1
        fed += len(piece)
        begin = 0
        if not head:
            begin = piece.find(b"\n") + 1
            if fed - len(piece) < HEADER_LIMIT:
                header.append(piece[: begin - 1] if begin else piece)
            if not begin:
                continue
            head = fed - len(piece) + begin
            with contextlib.suppress(SessionError):
                header_from_line(b"".join(header))
                scanner = LineScanner(lambda record, line: None)
        if scanner is not None:
            try:
                scanner.feed(piece[begin:])
            except DamagedText:
                scanner = None
    if scanner is not None:
        with contextlib.suppress(DamagedText):
            scanner.finish()
            return head + scanner.committed
    return lines
