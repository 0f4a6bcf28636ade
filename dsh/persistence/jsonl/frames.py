"""A zstd log is a concatenation of independent frames; here they are found, decoded and made.

Frames are found by structure alone (RFC 8878 §3.1), without decompressing: that tells a frame which
lacks its end (a tear) from one that is wrong (damage). The library is loaded where text is decoded or made.
"""

import contextlib
import itertools
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MAGIC = b"\x28\xb5\x2f\xfd"
LEVEL = 3
MAX_BLOCK = 128 * 1024
"""No block may be larger, compressed or not (RFC 8878 §3.1.1.2.4)."""
MAX_FRAME_TEXT = 1 << 30
"""A frame that decodes to more than this is refused: memory stays bounded whatever the file says."""
MAX_BLANK = 4 << 20
"""Longest row of NUL bytes that is held; in a frame there may be as many as a block has, and few more."""
BATCH_TEXT = 1 << 20
"""Bytes of text in one frame, and of one row, that packing makes, at most; a single record may be longer."""
_STEP = 1 << 20
_LATER_TRIES = 64
_LATER_BLOCKS = 1 << 16
_LATER_TEXT = 32 << 20
"""What is looked at behind a torn frame: so many magic numbers, so many blocks behind each, and of all frames
together so many bytes of text."""


class FrameDefect(Exception):
    """A frame is wrong: its structure, its checksum or its content. `offset` is the file's."""

    def __init__(self, offset: int, reason: str, *, is_foreign: bool = False) -> None:
        super().__init__(f"zstd frame at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason
        self.is_foreign = is_foreign
        """What stands there is no frame at all."""


class Frame(NamedTuple):
    """A structurally complete frame: bytes `start` to `end` of the file."""

    start: int
    end: int
    has_checksum: bool


class FrameScan(NamedTuple):
    """All complete frames from the beginning, and where a torn one starts, if the file ends inside it."""

    frames: list[Frame]
    torn_start: int | None


def scan_frames(data: bytes, start: int = 0) -> FrameScan:
    """Find the frames of a file.

    A rest that is nothing but NUL bytes counts as torn: that is how a crash leaves blocks that were
    never written, and it holds no information.

    Raises:
        FrameDefect: something that is not a frame stands where one must begin, or a frame's structure
            is complete and invalid.
    """
    frames: list[Frame] = []
    at = start
    while at < len(data):
        frame = next_frame(data, at)
        if frame is None:
            return FrameScan(frames, at)
        frames.append(frame)
        at = frame.end
    return FrameScan(frames, None)


def next_frame(data: bytes, start: int, *, most_blocks: int | None = None) -> Frame | None:
    """The frame that begins at `start`, or None when the file ends inside it.

    Args:
        most_blocks: None for any number; one with more counts as having no end.

    Raises:
        FrameDefect: see `scan_frames`.
    """
    size = len(data)
    if size - start < 4:
        return None
    if data[start : start + 4] != MAGIC:
        if not data[start:].strip(b"\0"):
            return None
        raise FrameDefect(start, "no frame begins here (wrong magic number)", is_foreign=True)
    if size == start + 4:
        return None
    descriptor = data[start + 4]
    if descriptor & 0x18:
        raise FrameDefect(start, "reserved bits are set in the frame header")
    has_checksum = bool(descriptor & 0x04)
    at = start + 5 + _header_rest(descriptor)
    for number in itertools.count():
        if at + 3 > size or number == most_blocks:
            return None
        block = int.from_bytes(data[at : at + 3], "little")
        is_last, kind, length = block & 1, block >> 1 & 3, block >> 3
        if kind == 3 or length > MAX_BLOCK:
            raise FrameDefect(start, "a block header is invalid")
        at += 3 + (1 if kind == 1 else length)
        if at > size:
            return None
        if is_last:
            break
    end = at + 4 if has_checksum else at
    return Frame(start, end, has_checksum) if end <= size else None


def _header_rest(descriptor: int) -> int:
    """Bytes of the frame header behind the descriptor: window, dictionary id, content size."""
    is_single = descriptor >> 5 & 1
    content_size = (is_single, 2, 4, 8)[descriptor >> 6]
    return (0 if is_single else 1) + (0, 1, 2, 4)[descriptor & 3] + content_size


def decode_frame(data: bytes, frame: Frame, *, limit: int | None = None) -> bytes:
    """The text of a complete frame. Raises as `decode_pieces`."""
    return b"".join(decode_pieces(data, frame, limit=limit))


def decode_pieces(data: bytes, frame: Frame, *, limit: int | None = None) -> Iterator[bytes]:
    """The text of a complete frame, in pieces. It is sound only once the last one was had.

    Raises:
        FrameDefect: checksum or content do not hold, or the text has more bytes than `limit`; without one,
            than `MAX_FRAME_TEXT`.
    """
    most = MAX_FRAME_TEXT if limit is None else limit
    import zstandard

    total = 0
    view = memoryview(data)[frame.start : frame.end]
    try:
        with zstandard.ZstdDecompressor().stream_reader(view) as reader:
            while part := reader.read(_STEP):
                total += len(part)
                if total > most:
                    raise FrameDefect(frame.start, f"decodes to more than {most} bytes")
                yield part
    except zstandard.ZstdError as error:
        raise FrameDefect(frame.start, f"damaged ({error})") from None


def decode_torn(data: bytes, start: int) -> Iterator[bytes]:
    """What the available blocks of a frame without its end decode to, in pieces."""
    import zstandard

    total = 0
    with (
        contextlib.suppress(zstandard.ZstdError),
        zstandard.ZstdDecompressor().stream_reader(memoryview(data)[start:]) as reader,
    ):
        while total <= MAX_FRAME_TEXT and (part := reader.read(_STEP)):
            total += len(part)
            yield part


def without_blank_end(pieces: Iterable[bytes]) -> bytes:
    """The bytes of a file, but of the NUL bytes at its end no more than may still belong to a frame.

    Raises:
        FrameDefect: so many NUL bytes stand in the middle: no frame holds them, and none begins behind.
    """
    kept: list[bytes] = []
    size = blank = 0
    for piece in pieces:
        if piece == bytes(len(piece)):
            blank += len(piece)
        elif blank > MAX_BLANK:
            raise FrameDefect(size - blank, f"no frame begins here ({blank} NUL bytes)", is_foreign=True)
        else:
            blank = 0
        if blank <= MAX_BLANK:
            kept.append(piece)
        size += len(piece)
    return b"".join(kept)


def later_frame(data: bytes, start: int) -> int | None:
    """Where a complete frame that decodes to whole JSON lines begins behind `start`, or None.

    A torn frame must be the last thing in a file. One damaged size field in an early frame makes it seem
    torn and would take everything behind it along; a good frame further on gives that away. Where more may
    begin than is looked at, the last one that was looked at counts as good: nothing is cut off then.
    """
    at, left = start, _LATER_TEXT
    for _ in range(_LATER_TRIES):
        at = data.find(MAGIC, at + 1)
        if at < 0:
            return None
        try:
            frame = next_frame(data, at, most_blocks=_LATER_BLOCKS)
            if frame is None:
                continue
            is_log, left = _holds_records(data, frame, left)
        except FrameDefect:
            continue
        if is_log or left <= 0:
            return at
    return at


def _holds_records(data: bytes, frame: Frame, most: int) -> tuple[bool, int]:
    """Whether a frame decodes to whole JSON lines; and how much of `most` bytes of text is left then."""
    unfinished, is_empty = b"", True
    for piece in decode_pieces(data, frame):
        most -= len(piece)
        is_empty = False
        *lines, unfinished = (unfinished + piece).split(b"\n")
        if most <= 0 or not all(map(_looks_like_record, lines)):
            return False, most
        if unfinished and not unfinished.lstrip(b" \t\r").startswith(b"{"):
            return False, most
    return not (unfinished or is_empty), most


def _looks_like_record(line: bytes) -> bool:
    line = line.strip(b" \t\r")
    return line.startswith(b"{") and line.endswith(b"}")


def encode_frame(text: bytes) -> bytes:
    """One frame with a checksum, at the level the original writes."""
    import zstandard

    return zstandard.ZstdCompressor(level=LEVEL, write_checksum=True).compress(text)
