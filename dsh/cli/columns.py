"""Text in columns of a terminal, where Chinese, Japanese and Korean characters are two columns wide."""

import unicodedata


def width(text: str) -> int:
    """How many columns a line takes."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cut(text: str, columns: int) -> str:
    """The text, or as much of its beginning as fits with `…` behind it."""
    if width(text) <= columns:
        return text
    kept, taken = "", 1
    for char in text:
        taken += _columns(char)
        if taken > columns:
            break
        kept += char
    return f"{kept}…"


def padded(text: str, columns: int) -> str:
    """The text with blanks behind it, up to this width."""
    return text + " " * (columns - width(text))


def wrapped(text: str, columns: int, *, first: str, indent: str) -> list[str]:
    """The words of a text in lines of this width; a word that is longer has a line of its own.

    Args:
        first: what the first line begins with.
        indent: what the others begin with.
    """
    lines: list[str] = []
    line, is_empty = first, True
    for word in text.split():
        if not is_empty and width(line) + 1 + width(word) > columns:
            lines.append(line)
            line, is_empty = indent, True
        line += word if is_empty else f" {word}"
        is_empty = False
    return lines if is_empty else [*lines, line]
