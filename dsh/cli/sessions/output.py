"""What the session commands print: to standard output whole, and nothing in it that a terminal would obey."""

import sys

from dsh.masking import masked
from dsh.unicode import valid

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_BLOCK = {code: shown for code, shown in _CONTROLS.items() if chr(code) not in "\t\n"}
_HIDDEN = {
    code: f"\\u{code:04x}" for code in (0x200B, *range(0x200E, 0x2010), *range(0x202A, 0x202F), 0xFEFF)
}
_HIDDEN |= {code: f"\\u{code:04x}" for code in (*range(0x2028, 0x202A), *range(0x2060, 0x2070))}


def line(text: str) -> str:
    """Text of a log on one line: control characters and what turns the direction of writing spelled out."""
    return valid(text).translate(_CONTROLS | _HIDDEN)


def block(text: str) -> str:
    """The same with line ends and tabs left as they are; a carriage return before a line end is dropped."""
    return valid(text).replace("\r\n", "\n").translate(_BLOCK | _HIDDEN)


def one_line(text: str) -> str:
    """Text of a log on one line, keys masked."""
    return line(masked(text))


def lines_of(text: str) -> str:
    """Text of a log with its line ends, keys masked."""
    return block(masked(text))


def common_length(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((position for position, (a, b) in pairs if a != b), min(len(one), len(other)))


def write(data: bytes | str) -> None:
    """Put it on standard output."""
    sys.stdout.buffer.write(data if isinstance(data, bytes) else valid(data).encode())
    sys.stdout.buffer.flush()
