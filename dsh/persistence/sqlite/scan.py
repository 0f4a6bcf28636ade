"""From the rows of one session to its entries, up to where the log stops being whole.

A defect is damage if a finished turn stands behind it; otherwise it begins a torn tail that repair may
remove. A packed row counts whole or not at all (`spec/persistence.md` §7).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from dsh.persistence.sqlite.record import DamagedRow, Record, count_of, read_row, start_of
from dsh.session.chunk_run import ChunkRun
from dsh.session.error import SessionError, TooDeep

Take: TypeAlias = Callable[[Record, bytes], None]
"""Gets each record that is whole, and its line; a packed row's line is empty."""


class Defect(NamedTuple):
    """Where the log stops being whole."""

    seq: int
    """Of the first row that does not fit; it and all behind it are the tail."""
    line: int
    """The line it would have in a file of JSON lines, the header being line 1."""
    reason: str


class DamagedRows(Exception):
    """A defect that nothing may be removed for."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line
        self.reason = reason


class RowScanner:
    """Takes rows in the order of their seqs. State: the seq that comes next, and the first defect."""

    def __init__(self, take: Take, next_seq: int = 0) -> None:
        self._pass_on = take
        self.next_seq = next_seq
        self.defect: Defect | None = None
        self._line = 1

    def scan(self, rows: Iterable[Sequence[object]]) -> None:
        """Take all rows of a session, or all from one on.

        Raises:
            DamagedRows: damage that is no torn tail.
        """
        for row in rows:
            self._line += 1
            try:
                record, line = read_row(row)
            except DamagedRow as error:
                raise DamagedRows(self._line, str(error)) from None
            except SessionError as error:
                self._note(row[0], f"row {row[0]} does not decode ({error})")
                if isinstance(error, TooDeep):
                    raise DamagedRows(self._line, f"row {row[0]}: {error}") from None
                continue
            if self.defect is None and start_of(record) == self.next_seq:
                self.next_seq += count_of(record)
                self._pass_on(record, line)
                continue
            self._note(row[0], f"expected seq {self.next_seq}, found {row[0]}")
            if not isinstance(record, ChunkRun) and record["type"] == "turn/end":
                assert self.defect is not None
                raise DamagedRows(
                    self.defect.line, f"{self.defect.reason}, and a finished turn stands behind it"
                )

    def _note(self, seq: object, reason: str) -> None:
        if self.defect is None:
            assert type(seq) is int
            self.defect = Defect(seq, self._line, reason)
