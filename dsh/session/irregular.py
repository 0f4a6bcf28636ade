"""What is odd in a stored log that opens all the same."""

from operator import itemgetter

from dsh.session.entry_list import EntryList
from dsh.session.event import SessionEvent
from dsh.session.vocabulary import payload_fault

MAX_IRREGULARITIES = 100
"""How many are kept of a log."""


class Irregularities:
    """Loaded events that break a rule which a log can be continued without, each with its seq."""

    __slots__ = ("_inspected", "_misshapen", "_out_of_place", "loaded")

    def __init__(self) -> None:
        self.loaded = 0
        """The seq after the last loaded event; what is appended later is sound."""
        self._inspected = 0
        """The seq after the last event whose payload was looked at."""
        self._misshapen: list[tuple[int, str]] = []
        self._out_of_place: list[tuple[int, str]] = []

    def copy(self) -> "Irregularities":
        """An independent state with the same contents."""
        made = Irregularities()
        made.loaded, made._inspected = self.loaded, self._inspected
        made._misshapen, made._out_of_place = list(self._misshapen), list(self._out_of_place)
        return made

    def note(self, seq: int, message: str) -> None:
        """An event does not fit where it stands."""
        if len(self._out_of_place) < MAX_IRREGULARITIES:
            self._out_of_place.append((seq, message))

    def found(self, log: EntryList) -> list[tuple[int, str]]:
        """The first of all, by seq. Payloads that were loaded since the last time are looked at now."""
        if self._inspected < self.loaded:
            for entry in log.walk(self._inspected, self.loaded):
                if isinstance(entry, SessionEvent) and len(self._misshapen) < MAX_IRREGULARITIES:
                    fault = payload_fault(entry.type, entry.data)
                    if fault is not None:
                        self._misshapen.append((entry.seq, fault))
            self._inspected = self.loaded
        return sorted(self._misshapen + self._out_of_place, key=itemgetter(0))[:MAX_IRREGULARITIES]
