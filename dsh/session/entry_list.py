"""How a log is held in memory: events and packed runs in order, found by seq."""

from bisect import bisect_right
from collections.abc import Iterator

from dsh.session.chunk_row import ChunkRun, Entry, entry_start, entry_stop
from dsh.session.event import SessionEvent


class EntryList:
    """The entries of one log. Only the run in `run`, which is then the last entry, may still grow."""

    __slots__ = ("_starts", "items", "length", "run")

    def __init__(self) -> None:
        self.items: list[Entry] = []
        self._starts: list[int] = []
        self.length = 0
        """The number of events, packed ones counted."""
        self.run: ChunkRun | None = None

    def add(self, entry: Entry) -> None:
        """Add a finished entry; a run that was open is finished too."""
        self.run = None
        self.items.append(entry)
        self._starts.append(entry_start(entry))
        self.length = entry_stop(entry)

    def open(self, run: ChunkRun) -> None:
        """Add a run that may grow."""
        self.add(run)
        self.run = run

    def copy(self) -> "EntryList":
        """An independent list; entries are shared, but for the run that may grow."""
        made = EntryList()
        made.items = self.since(0)
        made._starts = list(self._starts)
        made.length = self.length
        return made

    def event(self, seq: int) -> SessionEvent:
        """The event with this seq; IndexError where there is none."""
        if not 0 <= seq < self.length:
            raise IndexError(f"the log has no event {seq}, its length is {self.length}")
        entry = self.items[bisect_right(self._starts, seq) - 1]
        return entry.event(seq - entry.seq0) if isinstance(entry, ChunkRun) else entry

    def since(self, start: int) -> list[Entry]:
        """The entries from seq `start` on; a run is cut where `start` or the end of the log falls into it."""
        if start >= self.length:
            return []
        start = max(start, 0)
        out = self.items[bisect_right(self._starts, start) - 1 :]
        head, tail = out[0], out[-1]
        if isinstance(head, ChunkRun) and (start > head.seq0 or head is self.run):
            out[0] = head.slice(start - head.seq0)
        if len(out) > 1 and isinstance(tail, ChunkRun) and tail is self.run:
            out[-1] = tail.slice(0)
        return out

    def events(self, start: int, stop: int) -> Iterator[SessionEvent]:
        """The events from `start` up to `stop`, which must not be beyond the end of the log."""
        position = max(bisect_right(self._starts, start) - 1, 0)
        at = max(start, 0)
        while at < stop:
            entry = self.items[position]
            position += 1
            if isinstance(entry, ChunkRun):
                end = min(stop, entry.stop)
                yield from entry.events(at - entry.seq0, end - entry.seq0)
                at = end
            else:
                yield entry
                at += 1

    def select(self, types: frozenset[str], start: int) -> Iterator[SessionEvent]:
        """The events of these types from seq `start` on; runs are passed over."""
        for position in range(max(bisect_right(self._starts, start) - 1, 0), len(self.items)):
            entry = self.items[position]
            if isinstance(entry, SessionEvent) and entry.type in types and entry.seq >= start:
                yield entry
