"""The events of one log as records without payload, made one at a time."""

from collections.abc import Iterator
from itertools import accumulate

from dsh.capabilities.session_query import EventRecord
from dsh.plugins.session_query_sqlite.predicates import EventTest
from dsh.plugins.session_query_sqlite.trace import Surface, surface_of
from dsh.session.chunk_run import ChunkRun, Entry

CHUNK = "assistant/chunk"


class Records:
    """The records of a log that pass a test. Each iteration makes them anew; runs stay packed."""

    def __init__(self, session_id: str, entries: list[Entry], test: EventTest) -> None:
        self._session_id = session_id
        self._entries = entries
        self._test = test
        self._surface = surface_of(entries)

    def __iter__(self) -> Iterator[EventRecord]:
        test, session_id = self._test, self._session_id
        runs_fit = test.fits_kind(session_id, CHUNK, "log-only") and test.fits_text(None)
        for entry in self._entries:
            if isinstance(entry, ChunkRun):
                if not runs_fit:
                    continue
                for seq, time in enumerate(accumulate(entry.dt, initial=entry.time0), entry.seq0):
                    if test.fits_numbers(seq, time):
                        yield EventRecord(session_id, seq, CHUNK, time, "log-only")
                continue
            state = self._surface.state(entry.seq)
            if (
                test.fits_kind(session_id, entry.type, state)
                and test.fits_numbers(entry.seq, entry.time)
                and test.fits_text(entry)
            ):
                yield EventRecord(session_id, entry.seq, entry.type, entry.time, state)


def record_of(session_id: str, seq: int, kind: str, time: int, surface: Surface) -> EventRecord:
    return EventRecord(session_id, seq, kind, time, surface.state(seq))
