"""What the file of one session consists of, and how much its packing and its compression save."""

import functools
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from dsh.persistence.backend import StorageFigures
from dsh.persistence.jsonl.reader import scan_log
from dsh.persistence.jsonl.stable import read_stably
from dsh.session.chunk_run import ChunkRun
from dsh.session.header import SessionHeader
from dsh.session.value import JsonObject, encode


def figures_of(path: Path, check: Callable[[SessionHeader], None] | None = None) -> StorageFigures:
    """The figures of the log at `path`, plain or compressed. What repair drops is in the stored bytes alone.

    Args:
        check: raises unless the header is the one that is expected there.

    Raises:
        LogRefusal: it is damaged, of another version, or no session log.
        OSError: it cannot be read.
    """
    return read_stably(path, functools.partial(_read, path, check))


def _read(
    path: Path, check: Callable[[SessionHeader], None] | None, file: FileIO, found: os.stat_result
) -> StorageFigures:
    read = scan_log(path, file, found, _Counts)
    if check is not None:
        check(read.header)
    counts = read.sink
    return StorageFigures(
        encoding=read.encoding,
        rows=counts.rows,
        events=read.next_seq,
        packed_rows=counts.packed_rows,
        packed_events=counts.packed_events,
        text_bytes=read.header_bytes + counts.text_bytes,
        unpacked_bytes=read.header_bytes + counts.unpacked_bytes,
        stored_bytes=found.st_size,
    )


class _Counts:
    """Sums over the records of a log."""

    def __init__(self, header: SessionHeader) -> None:
        self.rows = self.packed_rows = self.packed_events = self.text_bytes = self.unpacked_bytes = 0

    def take(self, record: JsonObject | ChunkRun, line: bytes) -> None:
        size = len(line) + 1
        self.rows += 1
        self.text_bytes += size
        if isinstance(record, ChunkRun):
            self.packed_rows += 1
            self.packed_events += len(record)
            size = unpacked_size(record)
        self.unpacked_bytes += size


def unpacked_size(run: ChunkRun) -> int:
    """Bytes of the lines that the members of a run would be, each with its newline."""
    first = run.event(0)
    fixed = len(encode(first.to_json())) + 1
    fixed -= len(str(first.seq)) + len(str(first.time)) + len(encode(run.texts[0]))
    total, time = fixed * len(run), run.time0
    for position, text in enumerate(run.texts):
        total += len(str(run.seq0 + position)) + len(str(time)) + len(encode(text))
        if position < len(run.dt):
            time += run.dt[position]
    return total
