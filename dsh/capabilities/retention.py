"""What is kept of something too long, and exactly how much is not. Pure (`spec/capabilities-core.md` §17).

Texts are measured in UTF-8 and cut between characters, so that no cut ever shows as U+FFFD. A text is
valid Unicode (`dsh.unicode.valid`).
"""

import msgspec


class KeptText(msgspec.Struct, frozen=True):
    """The two ends of a text. Where nothing is left out, `head` is all of it."""

    head: str
    tail: str
    omitted_bytes: int
    """Between them, as UTF-8."""


def size_of(text: str) -> int:
    """The size of a text in bytes of UTF-8."""
    return len(text) if text.isascii() else len(text.encode())


def head(text: str, max_bytes: int) -> KeptText:
    """The beginning, at most so many bytes of it."""
    return both_ends(text, max_bytes, 0)


def tail(text: str, max_bytes: int) -> KeptText:
    """The end, at most so many bytes of it."""
    return both_ends(text, 0, max_bytes)


def head_tail(text: str, max_bytes: int) -> KeptText:
    """Both ends, half of the bytes each; the odd one is the head's."""
    return both_ends(text, max_bytes - max_bytes // 2, max_bytes // 2)


def both_ends(text: str, head_bytes: int, tail_bytes: int) -> KeptText:
    """Both ends, at most so many bytes of each."""
    raw = text.encode()
    if len(raw) <= head_bytes + tail_bytes:
        return KeptText(text, "", 0)
    first = _character_start(raw, head_bytes)
    last = _next_character(raw, len(raw) - tail_bytes)
    return KeptText(raw[:first].decode(), raw[last:].decode(), last - first)


def _character_start(raw: bytes, index: int) -> int:
    """Where the character begins that the byte belongs to."""
    while _is_inside(raw, index):
        index -= 1
    return index


def _next_character(raw: bytes, index: int) -> int:
    """The first beginning of a character from here on."""
    while _is_inside(raw, index):
        index += 1
    return index


def _is_inside(raw: bytes, index: int) -> bool:
    return index < len(raw) and raw[index] & 0xC0 == 0x80
