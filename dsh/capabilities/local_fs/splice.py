"""A literal replacement that changes the matched characters and nothing else.

Matching ignores how lines end: the file, the old and the new string are compared with LF for CRLF.
What is replaced is a range of the original text, so a file with mixed endings keeps every one of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import islice

from dsh.capabilities.fs import FsEditRequest, FsError
from dsh.capabilities.local_fs.reading import normalized

SHOWN_LINES = 20
"""Matches of an ambiguous edit that are named by their lines."""


def splice(
    text: str, edit: FsEditRequest, shown: str, *, name: str = "old_string", with_lines: bool = False
) -> str:
    """The text after the edit. Pure.

    A line break inside the new string takes the ending of the first line break inside the match, else of
    the nearest one before it, else of the nearest one after it, else LF.

    Args:
        shown: the path, for messages.
        name: what the caller calls the old string.
        with_lines: whether an ambiguous edit is told with the lines of the matches, for a caller that
            cannot ask for all of them to be replaced.

    Raises:
        FsError: `FS_EDIT_NOT_FOUND`, or `FS_AMBIGUOUS_EDIT` with the number of matches.
    """
    old, new = normalized(edit.old_string), normalized(edit.new_string)
    if not old:
        raise FsError("FS_EDIT_NOT_FOUND", f'{name} is empty; there is nothing to find in "{shown}"')
    flat = normalized(text)
    count = flat.count(old)
    if count == 0:
        raise FsError(
            "FS_EDIT_NOT_FOUND",
            f'{name} was not found in "{shown}"; it must match the file exactly, white space included',
        )
    if count > 1 and not edit.replace_all:
        where = f" ({_lines(flat, old, count)})" if with_lines else ""
        instead = "" if with_lines else " or set replace_all to true"
        raise FsError(
            "FS_AMBIGUOUS_EDIT",
            f'{name} matched {count} times in "{shown}"{where}; provide a more specific {name}{instead}',
        )
    if len(flat) == len(text):  # no CRLF: the plain way, which takes less of everything
        return text.replace(old, new)
    breaks = _Breaks(text, flat)
    pieces, done = [], 0
    for start in _matches(flat, old):
        end = start + len(old)
        pieces.append(text[done : breaks.raw(start)])
        pieces.append(new.replace("\n", breaks.ending(start, end)) if "\n" in new else new)
        done = breaks.raw(end)
    pieces.append(text[done:])
    return "".join(pieces)


def insert_lines(text: str, after_line: int, new: str) -> str:
    """The text with `new` as lines of its own behind line `after_line`; 0 puts it first. Pure.

    Lines are what LF parts, so that a text which ends with one has an empty last line. Each new line ends
    like the one before it, the first ones like the nearest; a byte order mark stays first.
    """
    added = normalized(new)
    flat = normalized(text)
    breaks = _Breaks(text, flat)
    lines = flat.count("\n") + 1
    if after_line == lines:
        ending = breaks.ending(len(flat), len(flat))
        return text + ending + added.replace("\n", ending)
    at = int(flat.startswith("\ufeff"))
    for _ in range(after_line):
        at = flat.index("\n", at) + 1
    ending = breaks.ending(at, at)
    place = breaks.raw(at)
    return text[:place] + added.replace("\n", ending) + ending + text[place:]


def _lines(flat: str, old: str, count: int) -> str:
    """The lines that the first matches begin in."""
    numbers: dict[int, None] = {}
    line, done = 1, 0
    for start in islice(_matches(flat, old), SHOWN_LINES):
        line += flat.count("\n", done, start)
        done = start
        numbers[line] = None
    named = ", ".join(map(str, numbers)) + (" and further down" if count > SHOWN_LINES else "")
    return f"{'line' if len(numbers) == 1 else 'lines'} {named}"


def _matches(flat: str, old: str) -> Iterator[int]:
    at = flat.find(old)
    while at >= 0:
        yield at
        at = flat.find(old, at + len(old))


class _Breaks:
    """Where the CRLFs of a text are, in positions of its LF form."""

    def __init__(self, text: str, flat: str) -> None:
        self._flat = flat
        self._crlf: list[int] = []
        at = text.find("\r\n") if len(text) != len(flat) else -1
        while at >= 0:
            self._crlf.append(at - len(self._crlf))
            at = text.find("\r\n", at + 2)

    def raw(self, at: int) -> int:
        """The position in the original text of a position in the LF form."""
        return at + bisect_left(self._crlf, at)

    def ending(self, start: int, end: int) -> str:
        """How a new line break in the place of `[start, end)` ends."""
        at = self._flat.find("\n", start, end)
        if at < 0:
            at = self._flat.rfind("\n", 0, start)
        if at < 0:
            at = self._flat.find("\n", end)
        position = bisect_right(self._crlf, at) - 1
        return "\r\n" if at >= 0 and position >= 0 and self._crlf[position] == at else "\n"
