"""A literal replacement that changes the matched characters and nothing else.

Matching ignores how lines end: the file, the old and the new string are compared with LF for CRLF.
What is replaced is a range of the original text, so a file with mixed endings keeps every one of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from dsh.capabilities.fs import FsEditRequest, FsError
from dsh.capabilities.local_fs.reading import normalized


def splice(text: str, edit: FsEditRequest, shown: str) -> str:
    """The text after the edit. Pure.

    A line break inside the new string takes the ending of the first line break inside the match, else of
    the nearest one before it, else of the nearest one after it, else LF.

    Raises:
        FsError: `FS_EDIT_NOT_FOUND`, or `FS_AMBIGUOUS_EDIT` with the number of matches.
    """
    old, new = normalized(edit.old_string), normalized(edit.new_string)
    if not old:
        raise FsError("FS_EDIT_NOT_FOUND", f'old_string is empty; there is nothing to find in "{shown}"')
    flat = normalized(text)
    count = flat.count(old)
    if count == 0:
        raise FsError(
            "FS_EDIT_NOT_FOUND",
            f'old_string was not found in "{shown}"; it must match the file exactly, white space included',
        )
    if count > 1 and not edit.replace_all:
        raise FsError(
            "FS_AMBIGUOUS_EDIT",
            f'old_string matched {count} times in "{shown}"; '
            "provide a more specific old_string or set replace_all to true",
        )
    breaks = _Breaks(text, flat)
    pieces, done = [], 0
    for start in _matches(flat, old):
        end = start + len(old)
        pieces.append(text[done : breaks.raw(start)])
        pieces.append(new.replace("\n", breaks.ending(start, end)) if "\n" in new else new)
        done = breaks.raw(end)
    pieces.append(text[done:])
    return "".join(pieces)


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
