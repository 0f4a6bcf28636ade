"""The window of lines that `read` shows, built from pieces of text in bounded memory. Pure."""

import msgspec

BOM = "\ufeff"


class Limits(msgspec.Struct, frozen=True):
    """How much of a file one window may hold."""

    lines: int
    line_chars: int
    """A longer line is cut here and says so."""
    total_bytes: int
    """UTF-8 bytes of all lines and the line breaks between them."""


class Line(msgspec.Struct, frozen=True):
    """One line without its ending. `number` counts from 1."""

    number: int
    text: str


class Window(msgspec.Struct, frozen=True):
    """The lines of the window in order, and how many the file has."""

    lines: tuple[Line, ...]
    total_lines: int


class WindowBuilder:
    """Takes a text in pieces of any size and keeps the lines of one window.

    Lines end with LF; one CR before it belongs to the ending. A last line without an ending counts, an
    ending at the very end adds no line. A byte order mark at the start is not shown. Wherever the text is
    cut into pieces, the result is the same.
    """

    def __init__(self, offset: int, limits: Limits) -> None:
        self._first, self._limits = offset, limits
        self._number = 1
        self._is_open = False
        self._is_started = False
        self._lines: list[Line] = []
        self._used_bytes = 0
        self._is_full = False
        self._head: list[str] = []
        self._head_chars = 0
        self._chars = 0
        self._last = ""

    @property
    def total_lines(self) -> int:
        """Lines seen so far, the one that is still open included."""
        return self._number - 1 + self._is_open

    @property
    def has_more(self) -> bool:
        """The window is complete, and at least one line follows it."""
        return self._is_full and self.total_lines >= self._first + len(self._lines)

    def feed(self, text: str) -> None:
        """Take the next piece."""
        at = 0
        if text and not self._is_started:
            self._is_started = True
            at = int(text.startswith(BOM))
        while at < len(text):
            if self._is_full:
                self._number += text.count("\n", at)
                self._is_open = not text.endswith("\n")
                return
            end = text.find("\n", at)
            piece_end = len(text) if end < 0 else end
            self._is_open = True
            if self._number >= self._first:
                self._take(text, at, piece_end)
            if end < 0:
                return
            self._end_line()
            at = end + 1

    def finish(self) -> Window:
        """The window, once all is fed; what was not fed is not counted."""
        if self._is_open and not self._is_full:
            self._end_line()
        return Window(tuple(self._lines), self.total_lines)

    def _take(self, text: str, start: int, end: int) -> None:
        if end == start:
            return
        room = self._limits.line_chars + 1 - self._head_chars
        if room > 0:
            piece = text[start : min(end, start + room)]
            self._head.append(piece)
            self._head_chars += len(piece)
        self._chars += end - start
        self._last = text[end - 1]

    def _end_line(self) -> None:
        if self._number >= self._first:
            self._keep_line()
            self._is_full = self._is_full or len(self._lines) >= self._limits.lines
        self._number += 1
        self._is_open = False
        self._head, self._head_chars, self._chars, self._last = [], 0, 0, ""

    def _keep_line(self) -> None:
        chars = self._chars - (self._last == "\r")
        shown = min(chars, self._limits.line_chars)
        text = "".join(self._head)[:shown]
        if shown < chars:
            text += _cut_mark(shown)
        cost = len(text.encode("utf-8", "surrogatepass")) + (1 if self._lines else 0)
        if self._used_bytes + cost > self._limits.total_bytes:
            if self._lines:
                self._is_full = True
                return
            text = _cut_to_bytes(text[:shown], self._limits.total_bytes)
        self._used_bytes += cost
        self._lines.append(Line(self._number, text))


def _cut_mark(chars: int) -> str:
    return f"... (line truncated to {chars} chars)"


def _cut_to_bytes(text: str, total_bytes: int) -> str:
    """As much of a line as fits with its mark, but at least one character: no window is ever empty."""
    room = total_bytes - len(_cut_mark(len(text)))
    kept = text.encode("utf-8", "surrogatepass")[: max(0, room)].decode("utf-8", "ignore") or text[:1]
    return kept + _cut_mark(len(kept))
