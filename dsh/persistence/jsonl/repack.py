"""Rewriting the text of a log in less space: runs of stream deltas joined across batches, few large frames.

Every record that is no plain stream delta stays the line that it is, whatever it holds.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest

from dsh.persistence.jsonl.frames import BATCH_TEXT
from dsh.persistence.jsonl.scan import LineScanner
from dsh.session.chunk_row import MIN_RUN, run_of_event
from dsh.session.chunk_run import ChunkRun, join
from dsh.session.envelope import event_from_json
from dsh.session.error import SessionError
from dsh.session.value import MAX_SAFE_INT, JsonObject, encode, json_equal


def pieces_of(text: bytes, start: int) -> Iterator[bytes]:
    """What stands behind `start`, in pieces that may end anywhere."""
    return (text[at : at + BATCH_TEXT] for at in range(start, len(text), BATCH_TEXT))


def repack(records: Iterable[bytes]) -> Iterator[bytes]:
    """The records of a log as batches of about `BATCH_TEXT` bytes.

    Args:
        records: the text of whole records, each with its newline, from seq 0.

    Raises:
        DamagedText: they are not whole.
    """
    made = _Batches()
    scanner = LineScanner(made.take)
    for piece in records:
        scanner.feed(piece)
        yield from made.done()
    scanner.finish()
    made.finish()
    yield from made.done()


def same_events(records: Iterable[bytes], other: Iterable[bytes]) -> bool:
    """Whether two texts stand for the same events, one by one."""
    pairs = zip_longest(_members(records), _members(other))
    return all(left == right or json_equal(left, right) for left, right in pairs)


class _Batches:
    """The batches that are complete, the one that is being filled, and a run that may still grow."""

    def __init__(self) -> None:
        self._done: list[bytes] = []
        self._lines: list[bytes] = []
        self._size = 0
        self._runs: list[ChunkRun] = []
        self._run_size = 0

    def take(self, record: JsonObject | ChunkRun, line: bytes) -> None:
        run = record if isinstance(record, ChunkRun) else _single(record, line)
        if run is None:
            self._close_run()
            self._put(line)
            return
        if self._runs and not (_continues(self._runs[-1], run) and self._run_size + len(line) <= BATCH_TEXT):
            self._close_run()
        self._runs.append(run)
        self._run_size += len(line)

    def finish(self) -> None:
        self._close_run()
        self._close_batch()

    def done(self) -> list[bytes]:
        """The batches that are complete, once."""
        done, self._done = self._done, []
        return done

    def _close_run(self) -> None:
        if not self._runs:
            return
        run = join(self._runs)
        self._runs, self._run_size = [], 0
        if len(run) < MIN_RUN:
            for event in run.events():
                self._put(encode(event.to_json()))
        else:
            self._put(encode(run.to_row()))

    def _put(self, line: bytes) -> None:
        if self._lines and self._size + len(line) + 1 > BATCH_TEXT:
            self._close_batch()
        self._lines.append(line)
        self._size += len(line) + 1

    def _close_batch(self) -> None:
        if self._lines:
            self._done.append(b"\n".join(self._lines) + b"\n")
        self._lines, self._size = [], 0


def _single(record: JsonObject, line: bytes) -> ChunkRun | None:
    """A run of one, where the line is exactly what its unpacking gives."""
    if record.get("type") != "assistant/chunk":
        return None
    try:
        event = event_from_json(record)
    except SessionError:
        return None
    return run_of_event(event) if encode(event.to_json()) == line else None


def _continues(run: ChunkRun, following: ChunkRun) -> bool:
    return (
        following.seq0 == run.stop
        and run.same_block(following)
        and abs(following.time0 - run.last_time) <= MAX_SAFE_INT
    )


def _members(records: Iterable[bytes]) -> Iterator[object]:
    """Every event of a text as a value that can be compared."""
    found: list[JsonObject | ChunkRun] = []
    keep: Callable[[JsonObject | ChunkRun, bytes], None] = lambda record, line: found.append(record)  # noqa: E731
    scanner = LineScanner(keep)
    for piece in records:
        scanner.feed(piece)
        yield from _expanded(found)
        found.clear()
    scanner.finish()
    yield from _expanded(found)


def _expanded(records: Sequence[JsonObject | ChunkRun]) -> Iterator[object]:
    for record in records:
        if isinstance(record, ChunkRun):
            for event in record.events():
                yield event.to_json()
        else:
            yield record
