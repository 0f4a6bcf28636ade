"""A terminal to draw on: its width, whether it takes colours, and texts cut and folded for it."""

import os
from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

from dsh.cli.columns import cut, width

Style = Literal["head", "user", "model", "tool", "dim", "bad"]
_SGR: dict[str, str] = {
    "head": "1",
    "user": "1;36",
    "model": "1;32",
    "tool": "33",
    "dim": "2",
    "bad": "31",
}
NARROWEST = 20
LEAST_ROOM = 8
"""Columns that a text has behind its indent."""
UNFOLDED = 1000
"""Characters of one line that are shown where there is no width."""
RULE = 80
"""Length of a rule where there is no width."""


class Look(NamedTuple):
    """How to draw."""

    columns: int | None = None
    """None where nothing is folded: the output goes to a file or another program."""
    has_colour: bool = False

    def styled(self, style: Style, text: str) -> str:
        """The text in a style; a line of its own may not go on in it."""
        return f"\x1b[{_SGR[style]}m{text}\x1b[0m" if self.has_colour and text else text

    def rule(self, text: str) -> str:
        """A line across, with a text in it."""
        length = min(self.columns or RULE, RULE)
        shown = cut(text, max(length - 6, NARROWEST))
        return f"── {shown} " + "─" * max(length - 4 - width(shown), 2)

    def lines(self, text: str, indent: str, style: Style | None = None) -> Iterator[str]:
        """A text, folded and indented, each line with its end."""
        for line in text.split("\n"):
            for piece in self._folded(line.rstrip().expandtabs(4), indent):
                shown = piece if style is None else self.styled(style, piece)
                yield f"{indent}{shown}".rstrip(" ") + "\n"

    def excerpt(self, text: str, indent: str, style: Style | None = None, *, most: int) -> Iterator[str]:
        """The beginning and the end of a text, at most so many lines of it; how many are left out is told."""
        lines = text.rstrip("\n").split("\n")
        if len(lines) <= most + 1:
            head, left_out, tail = lines, 0, []
        else:
            end = most // 4
            head, tail = lines[: most - end], lines[len(lines) - end :]
            left_out = len(lines) - most
        for line in head:
            yield from self.lines(self._shortened(line, indent), indent, style)
        if left_out:
            yield indent + self.styled("dim", f"… {left_out:,} lines left out") + "\n"
        for line in tail:
            yield from self.lines(self._shortened(line, indent), indent, style)

    def _shortened(self, line: str, indent: str) -> str:
        """A line that takes at most four lines of the terminal."""
        most = UNFOLDED if self.columns is None else 4 * max(self.columns - len(indent), NARROWEST) - 30
        return line if len(line) <= most else f"{line[:most]}… {len(line) - most:,} characters left out"

    def _folded(self, line: str, indent: str) -> Iterator[str]:
        if self.columns is None:
            yield line
            return
        room = max(self.columns - len(indent), LEAST_ROOM)
        while width(line) > room:
            head = line[: _fitting(line, room)]
            at_blank = head.rfind(" ", len(head) - len(head.lstrip()))
            if at_blank > room // 2:
                head = head[:at_blank]
            yield head
            line = line[len(head) :].removeprefix(" ")
        yield line


def _fitting(line: str, room: int) -> int:
    """How many characters from the beginning fit; one at least."""
    if line[:room].isascii():
        return room
    taken = 0
    for position, char in enumerate(line):
        taken += width(char)
        if taken > room:
            return max(position, 1)
    return len(line)


def look_of_output(environ: Mapping[str, str] = os.environ) -> Look:
    """How to draw on standard output: plain and unfolded unless it is a terminal."""
    if not os.isatty(1):
        return Look()
    try:
        columns = int(environ.get("COLUMNS", "")) or os.get_terminal_size(1).columns
    except (ValueError, OSError):
        columns = _asked()
    has_colour = not environ.get("NO_COLOR") and environ.get("TERM", "dumb") != "dumb"
    return Look(max(columns, NARROWEST), has_colour)


def _asked() -> int:
    try:
        return os.get_terminal_size(1).columns or RULE
    except OSError:
        return RULE
