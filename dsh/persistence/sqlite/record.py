"""Between the entries of a log and the rows of table `events` (`spec/persistence.md` §7).

A row is one event or a packed run; a packed one is known by `ignorable = 0`, whatever its type says.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from dsh.persistence.jsonl import frames
from dsh.persistence.jsonl.frames import FrameDefect
from dsh.persistence.sqlite.schema import Text
from dsh.persistence.sqlite.varint import decode_seqs, encode_seqs
from dsh.session.chunk_row import MIN_RUN, pack, row_to_run
from dsh.session.chunk_run import ChunkRun, Entry, expand
from dsh.session.error import InvalidEvent
from dsh.session.value import JsonObject, decode_strict, encode, safe_int

MAX_MEMBERS = 1024
"""Events that one packed row stands for at most."""
MAX_PACKED_BYTES = 1 << 20
"""Bytes of JSON text that a packed row holds at most."""
COMPRESS_FROM = 4096
"""Bytes of JSON text from which on a value is stored compressed, where that is smaller."""

COLUMNS = "seq, type, time, data, source_event_seqs, surface_op, ignorable"
"""What `Row` holds, in its order."""
INSERT = "INSERT INTO events VALUES (CAST(? AS TEXT), ?, CAST(? AS TEXT), ?, ?, ?, ?, ?)"
"""Behind the session's id it takes a `Row`."""


class Row(NamedTuple):
    """One row of table `events` as it is written, without the session's id."""

    seq: int
    """Of a packed run: its first member's."""
    type: bytes
    time: int
    """Epoch milliseconds; of a packed run: its first member's."""
    data: str | bytes
    """JSON text, or a zstd frame of it."""
    sources: bytes | None
    surface: str | None
    ignorable: int | None


Record: TypeAlias = JsonObject | ChunkRun
"""A stored event as decoded JSON, of which no more than the row was checked, or a checked run."""


class DamagedRow(Exception):
    """A row with a value that no writer of this format puts there, whatever stands behind it."""


# -- writing ---------------------------------------------------------------------------------------


def utf8(text: str) -> bytes:
    """Text as it goes into a column, half surrogate pairs included, which plain binding refuses."""
    return text.encode("utf-8", "surrogatepass")


def shown(value: object) -> str:
    """A stored text as a name; of what is none, something to see."""
    if not isinstance(value, Text):
        return str(value)
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return value.decode("utf-8", "replace")


def rows_of(entries: Iterable[Entry], *, packs: bool) -> Iterator[Row]:
    """The rows of one batch.

    Raises:
        InvalidEvent: an event's sources are no seqs.
    """
    if not packs:
        for event in expand(entries):
            yield _event_row(event.to_json())
        return
    for line in pack(entries):
        if "seq0" in line:
            yield from _packed_rows(line)
        else:
            yield _event_row(line)


def _event_row(event: JsonObject) -> Row:
    sources, surface = event.get("sourceEventSeqs"), event.get("surfaceOp")
    return Row(
        event["seq"],
        utf8(event["type"]),
        event["time"],
        _stored(encode(event["data"])),
        None if sources is None else encode_seqs(sources),
        None if surface is None else encode(surface).decode(),
        1 if event.get("ignorable") else None,
    )


def _packed_rows(run: JsonObject) -> Iterator[Row]:
    """A run as rows that keep the limits: each time the longest beginning that fits, at least `MIN_RUN`."""
    data: dict[str, Any] = run["data"]
    key = "texts" if "texts" in data else "args"
    texts, dt = data[key], data["dt"]
    sizes = _Sizes(data, key)
    seq, time, at = run["seq0"], run["time0"], 0
    while at < len(texts):
        count = sizes.fitting(at)
        part = {**data, "dt": dt[at : at + max(count, 1) - 1], key: texts[at : at + max(count, 1)]}
        if count >= MIN_RUN:
            yield Row(seq, utf8(run["type"]), time, _stored(encode(part)), None, None, 0)
        else:
            count = 1
            single = {**data, "dt": [], key: texts[at : at + 1]}
            member = row_to_run({"type": run["type"], "seq0": seq, "time0": time, "data": single})
            yield _event_row(member.event(0).to_json())
        time += sum(dt[at : at + count])
        seq, at = seq + count, at + count


class _Sizes:
    """How much JSON text the members of a run make."""

    def __init__(self, data: JsonObject, key: str) -> None:
        self._texts: Sequence[str] = data[key]
        self._dt: Sequence[int] = data["dt"]
        self._fixed = len(encode({**data, "dt": [], key: []}))

    def fitting(self, at: int) -> int:
        """How many members from `at` on one packed row can hold; fewer than `MIN_RUN`: none that counts."""
        limit = min(len(self._texts) - at, MAX_MEMBERS)
        size = self._fixed
        for count in range(limit):
            size += len(encode(self._texts[at + count])) + (count > 0)
            if count:
                size += len(str(self._dt[at + count - 1])) + (count > 1)
            if size > MAX_PACKED_BYTES:
                return count
        return limit


def _stored(text: bytes) -> str | bytes:
    if len(text) >= COMPRESS_FROM:
        frame = frames.encode_frame(text)
        if len(frame) < len(text):
            return frame
    return text.decode()


# -- reading ---------------------------------------------------------------------------------------


def read_row(row: Sequence[object]) -> tuple[Record, bytes]:
    """The record of a row selected by `COLUMNS`, and the line it would be in a file of JSON lines.

    Raises:
        DamagedRow: a value of a type, or a name, that no row has.
        InvalidEvent, JsonError: what is stored in it does not decode.
    """
    seq, kind, time, data, sources, surface, ignorable = row
    if type(seq) is not int or seq < 0 or type(time) is not int:
        raise DamagedRow(f"seq and time are integers, found {seq!r:.40} and {time!r:.40}")
    if not isinstance(kind, Text) or not kind:
        raise DamagedRow(f"row {seq}: type is a text that is not empty, found {kind!r:.60}")
    if not isinstance(data, bytes):
        raise DamagedRow(f"row {seq}: data is text or a blob, found {type(data).__name__}")
    if sources is not None and (not isinstance(sources, bytes) or isinstance(sources, Text)):
        raise DamagedRow(f"row {seq}: source_event_seqs is a blob, found {_kind_of(sources)}")
    if surface is not None and not isinstance(surface, Text):
        raise DamagedRow(f"row {seq}: surface_op is text, found {_kind_of(surface)}")
    if ignorable is not None and (type(ignorable) is not int or ignorable not in (0, 1)):
        raise DamagedRow(f"row {seq}: ignorable is 0, 1 or NULL, found {ignorable!r:.40}")
    try:
        name = kind.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise DamagedRow(f"row {seq}: type is not UTF-8") from None
    if ignorable == 0:
        return _read_packed(seq, name, time, data, is_plain=sources is None and surface is None)
    text = _text(data, frames.MAX_FRAME_TEXT)
    event: dict[str, Any] = {"type": name, "seq": seq, "time": time, "data": decode_strict(text)}
    line = [b'{"type":%b,"seq":%d,"time":%d,"data":%b' % (encode(name), seq, time, text)]
    if sources is not None:
        event["sourceEventSeqs"] = decode_seqs(sources)
        line.append(b',"sourceEventSeqs":' + encode(event["sourceEventSeqs"]))
    if surface is not None:
        event["surfaceOp"] = decode_strict(bytes(surface))
        line.append(b',"surfaceOp":' + bytes(surface))
    if ignorable:
        event["ignorable"] = True
        line.append(b',"ignorable":true')
    line.append(b"}")
    return event, b"".join(line)


def _read_packed(seq: int, tag: str, time: int, data: bytes, *, is_plain: bool) -> tuple[ChunkRun, bytes]:
    if not is_plain:
        raise InvalidEvent(f"packed row {seq}: it has no place on the surface")
    payload = decode_strict(_text(data, MAX_PACKED_BYTES))
    run = row_to_run({"type": tag, "seq0": seq, "time0": time, "data": payload})
    if not MIN_RUN <= len(run) <= MAX_MEMBERS:
        raise InvalidEvent(f"packed row {seq}: {MIN_RUN} to {MAX_MEMBERS} events, found {len(run)}")
    return run, b""


def _text(data: bytes, limit: int) -> bytes:
    """The JSON text of a `data` value, at most so many bytes.

    Raises:
        InvalidEvent: it is longer, or a blob that is not one whole zstd frame.
    """
    if isinstance(data, Text):
        if len(data) > limit:
            raise InvalidEvent(f"data has {len(data)} bytes, more than {limit}")
        return bytes(data)
    try:
        frame = frames.next_frame(data, 0)
        if frame is None or frame.end != len(data):
            raise InvalidEvent("data is not one whole zstd frame")
        parts: list[bytes] = []
        size = 0
        for part in frames.decode_pieces(data, frame):
            size += len(part)
            if size > limit:
                raise InvalidEvent(f"data decodes to more than {limit} bytes")
            parts.append(part)
    except FrameDefect as defect:
        raise InvalidEvent(f"data: {defect.reason}") from None
    return b"".join(parts)


def _kind_of(value: object) -> str:
    return "text" if isinstance(value, Text) else type(value).__name__


def start_of(record: Record) -> int | None:
    """The seq of a record's first event."""
    return record.seq0 if isinstance(record, ChunkRun) else safe_int(record["seq"])


def count_of(record: Record) -> int:
    """How many events a record stands for."""
    return len(record) if isinstance(record, ChunkRun) else 1
