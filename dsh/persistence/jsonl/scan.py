"""From text to entries: the lines behind a header, in order, up to where the log stops being whole.

A defect is damage if a `turn/end` stands on it or behind it (or if it is nested too deeply, which no crash
does); otherwise it begins a torn tail that repair may cut off (`spec/persistence.md` §6). The last line may
lack its newline if it is a complete record (`design.md` §4.20).
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from dsh.session.chunk_row import is_row, row_to_run
from dsh.session.chunk_run import ChunkRun
from dsh.session.error import SessionError, TooDeep
from dsh.session.value import JsonObject, decode_strict, safe_int

Take: TypeAlias = Callable[[JsonObject | ChunkRun, bytes], None]
"""Gets a stored event as decoded JSON, of which only the seq was checked, or a checked run; and its line."""


LINE_LIMIT = 256 << 20
"""Longest line in bytes; of a longer one no more is held than this."""

LOOKED_AT = 1 << 20
"""So many lines behind a defect are searched for a `turn/end`, but for pieces that cannot hold one."""

_SIGNS = (b"turn/end", b"\\")
"""One of them is in every line whose type is `turn/end`, in whatever way it is written."""
_TOO_LONG = f"a record is longer than {LINE_LIMIT} bytes"


class Defect(NamedTuple):
    """What is wrong with a line, and where in the text."""

    reason: str
    line: int
    """1-based; the header is line 1."""
    offset: int
    """Of the line's first byte, counted from the end of the header line."""


class DamagedText(Exception):
    """A defect that no crash explains: a finished turn stands behind it, or it is a complete record."""

    def __init__(self, defect: Defect) -> None:
        super().__init__(defect.reason)
        self.defect = defect


class LineScanner:
    """Takes text piece by piece and passes on what is whole. Holds the start of an unfinished line."""

    def __init__(self, take: Take, *, first_seq: int = 0) -> None:
        """`first_seq` is that of the first record, where the text is not that of a whole log."""
        self._pass_on = take
        self.next_seq = first_seq
        self.committed = 0
        """End of the last accepted line, in bytes from the end of the header line."""
        self.fed = 0
        """Bytes of text seen so far."""
        self.defect: Defect | None = None
        self.lacks_newline = False
        """The last accepted record has no newline of its own."""
        self._line = 1
        self._parts: list[bytes] = []
        """What is there of a line without its end, which begins at `_begin`; nothing once it is too long."""
        self._begin = 0
        self._is_too_long = False
        self._behind = 0
        """Lines that were looked at behind the defect."""

    def feed(self, text: bytes) -> None:
        """Take the next piece of text.

        Raises:
            DamagedText: nothing may be cut off at a defect.
        """
        at = 0
        is_searched = False
        while (end := text.find(b"\n", at)) >= 0:
            if self.defect is not None and not (is_searched or self._parts or self._is_too_long):
                is_searched = True
                if not any(text.find(sign, at) >= 0 for sign in _SIGNS):
                    self._line += text.count(b"\n", at)
                    at = text.rfind(b"\n") + 1
                    self._begin = self.fed + at
                    break
            self._line += 1
            if self._is_too_long:
                raise DamagedText(Defect(_TOO_LONG, self._line, self._begin))
            line = self._joined(text[at:end])
            stop = self.fed + end + 1
            if self.lacks_newline and not line:  # the delimiter that an earlier record was waiting for
                self._line -= 1
                self.lacks_newline = False
                self.committed = stop
            else:
                self._take(line, self._begin, stop, is_complete=True)
            at, self._begin = end + 1, stop
        self.fed += len(text)
        if at < len(text):
            self._parts.append(text[at:])
            if self.fed - self._begin > LINE_LIMIT:
                self._parts, self._is_too_long = [], True
                self.defect = self.defect or Defect(_TOO_LONG, self._line + 1, self._begin)

    def finish(self) -> None:
        """No more text belongs to what was fed: look at a last line without newline."""
        if not self._parts:
            return
        self._line += 1
        begin, self._begin = self._begin, self.fed
        had_defect = self.defect is not None
        self._take(self._joined(b""), begin, self.fed, is_complete=False)
        if self.committed == self.fed:
            self.lacks_newline = True
        elif not had_defect:
            self.defect = Defect("the last record is incomplete", self._line, begin)

    def _joined(self, last: bytes) -> bytes:
        """The line that ends with `last`."""
        if not self._parts:
            return last
        parts, self._parts = [*self._parts, last], []
        return b"".join(parts)

    @property
    def is_whole(self) -> bool:
        """Everything fed so far was accepted."""
        return self.committed == self.fed

    def _take(self, line: bytes, begin: int, end: int, *, is_complete: bool) -> None:
        if self.defect is not None:
            self._behind += 1
            if self._behind > LOOKED_AT:
                reason = f"{self.defect.reason}, and more stands behind it than is looked at"
                raise DamagedText(self.defect._replace(reason=reason))
            if not any(sign in line for sign in _SIGNS):
                return
        try:
            value = decode_strict(line)
            run = row_to_run(value) if is_row(value) else None
        except SessionError as error:
            if self.defect is None:
                self.defect = Defect(f"unparsable record ({error})", self._line, begin)
                if is_complete and isinstance(error, TooDeep):
                    raise DamagedText(self.defect) from None
            return
        if self.defect is None:
            first = run.seq0 if run else safe_int(value.get("seq")) if type(value) is dict else None
            if first == self.next_seq:
                self.next_seq += 1 if run is None else len(run)
                self.committed = end
                self._pass_on(value if run is None else run, line)
                return
            found = "no event" if first is None else f"seq {first}"
            self.defect = Defect(f"expected seq {self.next_seq}, found {found}", self._line, begin)
        if type(value) is dict and value.get("type") == "turn/end":
            reason = f"{self.defect.reason}, and a finished turn stands behind it"
            raise DamagedText(self.defect._replace(reason=reason))
