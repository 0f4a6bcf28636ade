"""What became of events: the surface folded with its replacements, and who cites whom."""

from collections.abc import Iterable
from typing import Any

from dsh.capabilities.session_query import EventRecord, EventTrace, SurfaceState
from dsh.capabilities.session_query_error import SessionQueryError
from dsh.session.event import SURFACE_TYPES, SessionEvent

_BEFORE_ALL = -1


class Surface:
    """The surface events of one log, folded once. Costs as much as there are events on it, at any length."""

    def __init__(self, events: Iterable[SessionEvent]) -> None:
        """`events` are those of surface types, in order.

        Raises:
            SessionQueryError: INVALID_SURFACE, a replacement names what is not on the surface.
        """
        self.replaced_by: dict[int, int] = {}
        self.replaced: dict[int, tuple[int, ...]] = {}
        """By the replacement: what it took the place of, in model order."""
        self.cited_by: dict[int, list[int]] = {}
        self._next: dict[int, int] = {}
        self._previous: dict[int, int] = {}
        self._seen: set[int] = set()
        last = _BEFORE_ALL
        for event in events:
            self._seen.add(event.seq)
            for source in event.sources or ():
                self.cited_by.setdefault(source, []).append(event.seq)
            if event.surface == "append":
                self._link(last, event.seq)
                last = event.seq
            else:
                end = self._replace(event.seq, event.surface)
                last = event.seq if end == last else last

    def state(self, seq: int) -> SurfaceState:
        if seq not in self._seen:
            return "log-only"
        return "shadowed" if seq in self.replaced_by else "current"

    def chain(self, seq: int) -> tuple[int, ...]:
        """What replaced it, what replaced that, and so on."""
        chain = []
        while (by := self.replaced_by.get(seq)) is not None:
            chain.append(by)
            seq = by
        return tuple(chain)

    def _link(self, left: int, right: int) -> None:
        self._next[left], self._previous[right] = right, left

    def _replace(self, seq: int, operation: Any) -> int:
        """Put an event in the place of others. Answers the last of those."""
        start: int = operation["start"]
        end: int = operation["end"]
        shadowed = []
        at: int | None = start if start in self._previous else None
        while at is not None:
            shadowed.append(at)
            if at == end:
                break
            at = self._next.get(at)
        else:
            raise SessionQueryError(
                "INVALID_SURFACE", f"event {seq} replaces {start} to {end}, which are not on the surface"
            )
        before, after = self._previous[start], self._next.pop(end, None)
        for one in shadowed:
            self.replaced_by[one] = seq
            del self._previous[one]
            self._next.pop(one, None)
        self._link(before, seq)
        if after is not None:
            self._link(seq, after)
        self.replaced[seq] = tuple(shadowed)
        return end


def surface_of(entries: Iterable[object]) -> Surface:
    """The surface of a log's entries; packed runs are passed over."""
    return Surface(
        entry for entry in entries if isinstance(entry, SessionEvent) and entry.type in SURFACE_TYPES
    )


def trace(record: EventRecord, event: SessionEvent, surface: Surface) -> EventTrace:
    chain = surface.chain(event.seq)
    return EventTrace(
        record,
        chain[0] if chain else None,
        chain,
        surface.replaced.get(event.seq, ()),
        event.sources or (),
        tuple(surface.cited_by.get(event.seq, ())),
    )
