"""What commands print, made readable: without terminal control, with nothing that breaks a log or a screen.

Escape sequences go. Of a line that was written over by carriage returns the last state stays. Control
characters are shown by their pictures (`␀`, `␛`). Output that is no text is named, with a short piece of it.
"""

import re

from dsh.capabilities.subprocess import Captured

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\x1b\][^\x07\x1b\r\n]*(?:\x07|\x1b\\)"  # OSC: titles, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # DCS and its like: images, terminal queries
    r"|\x1b[ -/]*[0-~]"  # the rest: character sets, modes
)
_UNFINISHED = re.compile(
    rb"(?:\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b\r\n]*\x1b?|[PX^_][^\x1b]*\x1b?|[ -/]*)?|\r)\Z"
)
_PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)} | {0x7F: 0x2421}
_PICTURES |= dict.fromkeys(range(0x80, 0xA0), 0xFFFD)

_BINARY = re.compile(r"[\x00-\x07\x0e-\x1a\x1c-\x1f\x7f-\x9f\ufffd]")
_BINARY_SHARE = 0.3
_BINARY_LEAST = 24
_EXCERPT_CHARS = 80
HELD_BYTES = 4096
"""The start of an escape sequence that is still coming in may be so long; a longer one is taken as text."""


def readable(text: str) -> str:
    """The text without terminal control. Plain text comes back as it is."""
    if not _CONTROL.search(text):
        return text
    text = _SEQUENCE.sub("", text)
    if "\b" in text:
        text = _without_overstrikes(text)
    if "\r" in text:
        text = "\n".join(_last_state(line) for line in text.split("\n"))
    return text.translate(_PICTURES)


def unfinished(raw: bytes) -> int:
    """How many bytes at the end may be the start of a sequence whose rest is still coming in."""
    found = _UNFINISHED.search(raw, max(0, len(raw) - HELD_BYTES))
    return len(raw) - found.start() if found else 0


def shown(captured: Captured) -> str:
    """A collected stream as a reader should see it; output that is no text is named."""
    text = captured.text
    bad = sum(1 for _ in _BINARY.finditer(text))
    if bad < _BINARY_LEAST or bad < _BINARY_SHARE * len(text):
        return readable(text)
    excerpt = text[:_EXCERPT_CHARS].translate(_PICTURES).replace("\n", "␊").replace("\t", "␉")
    size = len(captured.raw)
    what = f"the last {size} bytes of it" if captured.lossy else f"{size} bytes"
    return f"[binary output, {what}; it starts with]\n{excerpt}\n"


def _last_state(line: str) -> str:
    return next((part for part in reversed(line.split("\r")) if part), "")


def _without_overstrikes(text: str) -> str:
    kept: list[str] = []
    for character in text:
        if character != "\b":
            kept.append(character)
        elif kept and kept[-1] not in "\n\r":
            kept.pop()
    return "".join(kept)
