"""What the file of one session consists of, and how much its packing and its compression save."""

from pathlib import Path

from dsh.persistence.backend import StorageFigures
from dsh.persistence.error import SessionCorruption
from dsh.persistence.jsonl.raw import parse_header, read_text
from dsh.persistence.jsonl.scan import DamagedText, LineScanner
from dsh.session.chunk_run import ChunkRun
from dsh.session.value import JsonObject, encode


def figures_of(path: Path) -> StorageFigures:
    """The figures of the log at `path`, plain or compressed. A torn tail counts as stored bytes alone.

    Raises:
        LogRefusal: it is damaged, of another version, or no session log.
        OSError: it cannot be read.
    """
    text = read_text(path)
    header, _, rows = text.content.partition(b"\n")
    parse_header(path, header)
    counts = _Counts()
    scanner = LineScanner(counts.take)
    try:
        scanner.feed(rows)
        scanner.finish()
    except DamagedText as damaged:
        offset = len(header) + 1 + damaged.defect.offset if text.encoding == "plain" else None
        raise SessionCorruption(
            damaged.defect.reason, path=str(path), line=damaged.defect.line, offset=offset
        ) from None
    head = len(header) + 1
    return StorageFigures(
        encoding=text.encoding,
        rows=counts.rows,
        events=scanner.next_seq,
        packed_rows=counts.packed_rows,
        packed_events=counts.packed_events,
        text_bytes=head + counts.text_bytes,
        unpacked_bytes=head + counts.unpacked_bytes,
        stored_bytes=text.stored_bytes,
    )


class _Counts:
    """Sums over the records of a log."""

    def __init__(self) -> None:
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
