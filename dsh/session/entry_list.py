"""How a log is held in memory: events, packed runs and stored lines in order, found by seq."""

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import TypeAlias, overload

from dsh.session.chunk_run import ChunkRun, Entry, entry_start, entry_stop
from dsh.session.envelope import event_from_json
from dsh.session.event import SessionEvent
from dsh.session.value import JsonObject, decode_strict

LINE_LIMIT = 4096
"""Bytes of a stored line that is worth keeping as it is: in a longer one the text outweighs the objects."""

Held: TypeAlias = Entry | bytes
"""An entry, or a single event as the checked line that it was read from, a fifth of the size."""


class EntryList:
    """The entries of one log. Only the run in `run`, which is then the last entry, may still grow."""

    __slots__ = ("_items", "_kinds", "_starts", "length", "run")

    def __init__(self) -> None:
        self._items: list[Held] = []
        self._kinds: list[str | None] = []
        """The type of each event, None for a run."""
        self._starts: array[int] = array("q")
        self.length = 0
        """The number of events, packed ones counted."""
        self.run: ChunkRun | None = None

    def add(self, entry: Entry) -> None:
        """Add a finished entry; a run that was open is finished too."""
        self._put(None if isinstance(entry, ChunkRun) else entry.type, entry, entry_start(entry))
        self.length = entry_stop(entry)

    def add_line(self, kind: str, line: bytes) -> None:
        """Add the next event as the line that holds it; the caller has checked that it holds this type."""
        self._put(sys.intern(kind), line, self.length)
        self.length += 1

    def open(self, run: ChunkRun) -> None:
        """Add a run that may grow."""
        self.add(run)
        self.run = run

    def _put(self, kind: str | None, item: Held, start: int) -> None:
        self.run = None
        self._items.append(item)
        self._kinds.append(kind)
        self._starts.append(start)

    @property
    def last_kind(self) -> str | None:
        """The type of the last entry; None for a run, and in an empty log."""
        return self._kinds[-1] if self._kinds else None

    def copy(self, stop: int | None = None) -> "EntryList":
        """An independent list, up to seq `stop`; entries are shared, but for the run that may grow."""
        made = EntryList()
        made.length = self.length if stop is None else stop
        count = bisect_left(self._starts, made.length)
        made._items, made._kinds, made._starts = (
            self._items[:count],
            self._kinds[:count],
            self._starts[:count],
        )
        last = made._items[-1] if made._items else None
        if isinstance(last, ChunkRun) and (last is self.run or last.stop > made.length):
            made._items[-1] = last.slice(0, made.length - last.seq0)
        return made

    def event(self, seq: int) -> SessionEvent:
        """The event with this seq; IndexError where there is none."""
        if not 0 <= seq < self.length:
            raise IndexError(f"the log has no event {seq}, its length is {self.length}")
        entry = self._entry(self._position(seq))
        return entry.event(seq - entry.seq0) if isinstance(entry, ChunkRun) else entry

    def between(self, start: int, stop: int) -> list[Entry]:
        """The entries from seq `start` up to `stop`; a run is cut where one of them falls into it.

        Args:
            stop: not beyond the end of the log.
        """
        start = max(start, 0)
        if start >= stop:
            return []
        span = range(self._position(start), self._position(stop - 1) + 1)
        out = [self._entry(position) for position in span]
        for place in {0, len(out) - 1}:
            entry = out[place]
            if isinstance(entry, ChunkRun):
                first, last = max(start, entry.seq0), min(stop, entry.stop)
                if entry is self.run or first > entry.seq0 or last < entry.stop:
                    out[place] = entry.slice(first - entry.seq0, last - entry.seq0)
        return out

    def events(self, start: int, stop: int) -> Iterator[SessionEvent]:
        """The events from `start` up to `stop`, which must not be beyond the end of the log."""
        position = self._position(start)
        at = max(start, 0)
        while at < stop:
            entry = self._entry(position)
            position += 1
            if isinstance(entry, ChunkRun):
                end = min(stop, entry.stop)
                yield from entry.events(at - entry.seq0, end - entry.seq0)
                at = end
            else:
                yield entry
                at += 1

    def walk(self, start: int = 0, stop: int | None = None) -> Iterator[Entry]:
        """The entries one by one, each decoded when its turn comes; nothing may be added meanwhile.

        Args:
            start, stop: seqs at which entries begin.
        """
        last = len(self._items) if stop is None else bisect_left(self._starts, stop)
        return map(self._entry, range(bisect_left(self._starts, start), last))

    def select(self, types: frozenset[str], start: int) -> Iterator[SessionEvent]:
        """The events of these types from seq `start` on; runs are passed over."""
        for position in range(self._position(start), len(self._items)):
            if self._kinds[position] in types and self._starts[position] >= start:
                entry = self._entry(position)
                assert isinstance(entry, SessionEvent)
                yield entry

    def last_before(self, types: frozenset[str], stop: int) -> SessionEvent | None:
        """The last event of these types below seq `stop`; runs are passed over."""
        position = self._position(stop - 1) if stop > 0 and self._items else -1
        while position >= 0 and self._kinds[position] not in types:
            position -= 1
        if position < 0:
            return None
        entry = self._entry(position)
        return entry if isinstance(entry, SessionEvent) else None

    def _position(self, seq: int) -> int:
        return max(bisect_right(self._starts, seq) - 1, 0)

    def _entry(self, position: int) -> Entry:
        item = self._items[position]
        return event_from_json(decode_strict(item)) if isinstance(item, bytes) else item


class HeldEntries(Sequence[Entry]):
    """The entries of a log as they were at one moment. Each is decoded when it is looked at, and not kept."""

    __slots__ = ("_log",)

    def __init__(self, log: EntryList) -> None:
        """`log` becomes its own."""
        self._log = log

    def __len__(self) -> int:
        return len(self._log._items)

    @overload
    def __getitem__(self, position: int) -> Entry: ...
    @overload
    def __getitem__(self, position: slice) -> list[Entry]: ...
    def __getitem__(self, position: int | slice) -> Entry | list[Entry]:
        if isinstance(position, slice):
            return [self._log._entry(one) for one in range(len(self))[position]]
        return self._log._entry(position)

    def __iter__(self) -> Iterator[Entry]:
        return self._log.walk()

    def lines(self) -> Iterator[tuple[Entry | JsonObject, bytes | None]]:
        """Each entry, with its line where it is held as one: it is then what that decodes to."""
        for item in self._log._items:
            if isinstance(item, bytes):
                line: JsonObject = decode_strict(item)
                yield line, item
            else:
                yield item, None
