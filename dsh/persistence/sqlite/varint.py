"""How `sourceEventSeqs` lies in a column: LEB128 varints, the first seq plain, then zig-zag differences.

An empty list is an empty blob. Only the shortest form of a number counts (`spec/persistence.md` §7).
"""

from collections.abc import Iterable

from dsh.session.error import InvalidEvent
from dsh.session.value import MAX_SAFE_INT

_MAX_SHIFT = 56
"""Bits in front of the last group that a number of the format can need: zig-zag takes 54 bits."""


def encode_seqs(seqs: Iterable[int]) -> bytes:
    """The blob of a list of seqs.

    Raises:
        InvalidEvent: one of them is no seq.
    """
    out = bytearray()
    before: int | None = None
    for seq in seqs:
        if type(seq) is not int or not 0 <= seq <= MAX_SAFE_INT:
            raise InvalidEvent(f"sourceEventSeqs: a seq is a safe integer from 0, found {seq!r:.40}")
        if before is None:
            number = seq
        else:
            number = (seq - before) * 2 if seq >= before else (before - seq) * 2 - 1
        before = seq
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def decode_seqs(blob: bytes) -> list[int]:
    """The seqs behind a blob.

    Raises:
        InvalidEvent: it is cut off, not in its shortest form, or holds what is no seq.
    """
    seqs: list[int] = []
    number = shift = 0
    for byte in blob:
        number |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            if shift > _MAX_SHIFT:
                raise InvalidEvent("sourceEventSeqs: a number is too long")
            continue
        if shift and not byte:
            raise InvalidEvent("sourceEventSeqs: a number is longer than it need be")
        if seqs:
            number = seqs[-1] + (-(number + 1 >> 1) if number & 1 else number >> 1)
        if not 0 <= number <= MAX_SAFE_INT:
            raise InvalidEvent("sourceEventSeqs: a seq is out of range")
        seqs.append(number)
        number = shift = 0
    if shift:
        raise InvalidEvent("sourceEventSeqs: the last number is cut off")
    return seqs
