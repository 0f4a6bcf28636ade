"""From text to entries: the lines behind a header, in order, up to where the log stops being whole.

A defect is damage if a `turn/end` stands on it or behind it; otherwise it begins a torn tail that repair
may cut off (`spec/persistence.md` §6). The last line may lack its newline if it is a complete record
(`design.md` §4.20).
"""

import sys
from typing import Any, NamedTuple, TypeAlias

from dsh.session.chunk_row import ChunkRun, is_row, row_to_run
from dsh.session.error import SessionError
from dsh.session.value import JsonValue, decode_strict, freeze, safe_int

StoredEntry: TypeAlias = JsonValue | ChunkRun
"""A stored event as decoded JSON, unchecked but for its seq, or a checked run of packed chunks."""


class Defect(NamedTuple):
    """What is wrong with a line, and where in the text."""

    reason: str
    line: int
    """1-based; the header is line 1."""
    offset: int
    """Of the line's first byte, counted from the end of the header line."""


class DamagedText(Exception):
    """A defect in front of a finished turn: nothing may be cut off there."""

    def __init__(self, defect: Defect) -> None:
        super().__init__(defect.reason)
        self.defect = defect


class LineScanner:
    """Takes text piece by piece and keeps what is whole. Holds the start of a line that is not complete."""

    def __init__(self) -> None:
        self.entries: list[StoredEntry] = []
        self.next_seq = 0
        self.committed = 0
        """End of the last accepted line, in bytes from the end of the header line."""
        self.fed = 0
        """Bytes of text seen so far."""
        self.defect: Defect | None = None
        self.lacks_newline = False
        """The last accepted record has no newline of its own."""
        self._line = 1
        self._rest = b""

    def feed(self, text: bytes) -> None:
        """Take the next piece of text.

        Raises:
            DamagedText: a defect is followed by a finished turn.
        """
        if self._rest:
            text = self._rest + text
            self.fed -= len(self._rest)
        at = 0
        while (end := text.find(b"\n", at)) >= 0:
            self._line += 1
            if at == end and self.lacks_newline:  # the delimiter that an earlier record was waiting for
                self.lacks_newline = False
                self._line -= 1
                self.committed = self.fed + end + 1
            else:
                self._take(text[at:end], self.fed + at, self.fed + end + 1)
            at = end + 1
        self._rest = text[at:]
        self.fed += len(text)

    def finish(self) -> None:
        """No more text belongs to what was fed: look at a last line without newline."""
        rest, self._rest = self._rest, b""
        if not rest:
            return
        self._line += 1
        begin = self.fed - len(rest)
        had_defect = self.defect is not None
        self._take(rest, begin, self.fed)
        if self.committed == self.fed:
            self.lacks_newline = True
        elif not had_defect:
            self.defect = Defect("the last record is incomplete", self._line, begin)

    @property
    def is_whole(self) -> bool:
        """Everything fed so far was accepted."""
        return self.committed == self.fed

    def _take(self, line: bytes, begin: int, end: int) -> None:
        try:
            value = decode_strict(line)
            run = row_to_run(value) if is_row(value) else None
        except SessionError as error:
            if self.defect is None:
                self.defect = Defect(f"unparsable record ({error})", self._line, begin)
            return
        if self.defect is None:
            first = run.seq0 if run else safe_int(value.get("seq")) if type(value) is dict else None
            if first == self.next_seq:
                self.entries.append(_compact(value) if run is None else run)
                self.next_seq += 1 if run is None else len(run)
                self.committed = end
                return
            found = "no event" if first is None else f"seq {first}"
            self.defect = Defect(f"expected seq {self.next_seq}, found {found}", self._line, begin)
        if type(value) is dict and value.get("type") == "turn/end":
            raise DamagedText(self.defect)


def _compact(event: dict[str, Any]) -> dict[str, Any]:
    """The event in less memory: its payload as the log will hold it, its type shared.

    A payload that cannot be held is left as it is, for the check of the whole to refuse.
    """
    if type(kind := event.get("type")) is str:
        event["type"] = sys.intern(kind)
    if "data" in event:
        try:
            event["data"] = freeze(event["data"], "data", stored=True)
        except SessionError:
            return event
    return event
