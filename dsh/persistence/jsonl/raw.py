"""A stored log without its events: which form it has, its header, its text."""

import os
from pathlib import Path

from dsh.persistence.error import SessionCorruption, SessionFormatUnsupported
from dsh.persistence.jsonl import frames
from dsh.persistence.jsonl.frames import FrameDefect
from dsh.persistence.jsonl.stable import open_regular, read_bytes
from dsh.session.error import SessionError, UnsupportedLog
from dsh.session.header import SessionHeader, header_from_line
from dsh.session.value import decode_strict

HEADER_STEP = 8 * 1024
"""Bytes that a listing reads of each log at first; then as many again as it has, until the header ends."""
HEADER_LIMIT = 16 << 20
"""Longest header line that a listing reads, in bytes."""


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
        raise SessionFormatUnsupported(error.message, path=str(path), line=1) from error
    except SessionError as error:
        raise SessionCorruption(f"header: {error}", path=str(path), line=1, offset=0) from error


def header_line(path: Path, frame_text: bytes) -> bytes:
    """The header line that the first frame of a log decodes to.

    Raises:
        SessionCorruption: the frame holds more or less than one line.
    """
    if frame_text.find(b"\n") != len(frame_text) - 1:
        raise SessionCorruption("the first frame is not exactly one line", path=str(path), offset=0)
    return frame_text[:-1]


def damaged_frame(path: Path, defect: FrameDefect) -> SessionCorruption:
    """The refusal of a log with a wrong frame."""
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
    reason = "the file is empty" if not data else "the header is not complete"
    raise SessionCorruption(reason, path=str(path), line=1, offset=0)


def _first_line(path: Path, data: bytes) -> bytes | None:
    if not is_compressed(path, data):
        end = data.find(b"\n")
        return data[:end] if end >= 0 else None
    try:
        frame = frames.next_frame(data, 0)
        return None if frame is None else header_line(path, frames.decode_frame(data, frame))
    except FrameDefect as defect:
        raise damaged_frame(path, defect) from None


def read_raw(path: Path, session_id: str) -> bytes:
    """The committed text of a log, header line first, verbatim. Only the header's shape and id are checked.

    Raises:
        SessionCorruption: damaged frames, or not the header of this session.
        OSError: it cannot be read.
    """
    data, _ = read_bytes(path)
    if is_compressed(path, data):
        try:
            text = b"".join(frames.decode_frame(data, frame) for frame in frames.scan_frames(data).frames)
        except FrameDefect as defect:
            raise damaged_frame(path, defect) from None
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
