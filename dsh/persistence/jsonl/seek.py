"""Finding the record with a seq in a log without reading what stands in front of it.

There is no index to keep: seqs grow through the file, and every frame or line tells its own. Whatever does
not look like that is for the reader to judge, from the beginning.
"""

from collections.abc import Callable
from io import FileIO
from typing import NamedTuple

from dsh.persistence.jsonl import frames
from dsh.persistence.jsonl.frames import Frame, FrameDefect
from dsh.persistence.jsonl.scan import LINE_LIMIT
from dsh.session.error import SessionError
from dsh.session.value import decode_strict, safe_int

NEAR = 64 * 1024
"""Bytes of plain text within which reading on is as good as looking closer."""


class Start(NamedTuple):
    """Where to begin: the number of a frame or the offset of a line, and the seq of its first record."""

    at: int
    seq: int


def find_frame(data: bytes, batches: list[Frame], seq: int) -> Start | None:
    """The last frame that begins at or before `seq`; None where a frame does not begin with a record."""

    def probe(number: int) -> Start | None:
        first = _first_seq(data, batches[number])
        return None if first is None else Start(number, first)

    return _search(0, len(batches), 1, seq, probe)


def find_line(file: FileIO, begin: int, end: int, seq: int) -> Start | None:
    """A line near the one with `seq`, not behind it; None where a line is no record.

    Args:
        begin: where the line behind the header begins.
        end: how much of the file there is.
    """

    def probe(at: int) -> Start | None:
        file.seek(at - 1)
        skipped = _until_newline(file, end - at + 1)
        if skipped is None:
            return None
        start = at - 1 + len(skipped)
        line = _until_newline(file, end - start)
        first = None if line is None else _seq_of(line)
        return None if first is None else Start(start, first)

    return _search(begin, end, NEAR, seq, probe)


def _search(low: int, high: int, step: int, seq: int, probe: Callable[[int], Start | None]) -> Start | None:
    """The last start that is not behind `seq`, among the positions from `low` up to `high`."""
    if low >= high or (best := probe(low)) is None or best.seq > seq:
        return None
    while high - low > step:
        middle = (low + high) // 2
        found = probe(middle)
        if found is None:
            return None
        if found.seq <= seq:
            low, best = max(middle, found.at), found
        else:
            high = middle
    return best


def _first_seq(data: bytes, frame: Frame) -> int | None:
    text: list[bytes] = []
    try:
        for piece in frames.decode_pieces(data, frame, limit=LINE_LIMIT):
            text.append(piece)
            if b"\n" in piece:
                break
    except FrameDefect:
        return None
    return _seq_of(b"".join(text).partition(b"\n")[0])


def _until_newline(file: FileIO, most: int) -> bytes | None:
    """The bytes up to the next newline and with it; None where there is none in so many."""
    parts: list[bytes] = []
    while most > 0 and (piece := file.read(min(most, NEAR))):
        end = piece.find(b"\n") + 1
        if end:
            file.seek(end - len(piece), 1)
            return b"".join((*parts, piece[:end]))
        parts.append(piece)
        most -= len(piece)
    return None


def _seq_of(line: bytes) -> int | None:
    try:
        record = decode_strict(line)
    except SessionError:
        return None
    return safe_int(record.get("seq", record.get("seq0"))) if type(record) is dict else None
