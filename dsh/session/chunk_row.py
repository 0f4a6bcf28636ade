"""Rows for packed runs: what stands on disk for many consecutive `assistant/chunk` events of one block.

Rows are an encoding of storage; nobody but the writers and readers of a log sees them
(`spec/session-log.md` §11).
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

from dsh.session.chunk_run import ChunkRun, Entry, RunKind, join
from dsh.session.error import InvalidEvent
from dsh.session.event import SessionEvent
from dsh.session.value import MAX_SAFE_INT, FrozenDict, JsonObject, is_number, safe_int

MIN_RUN = 3
"""Writers pack a run of this many members or more; readers take any length from 1."""

_DELTA_KIND: dict[object, RunKind] = {
    "text-delta": "text",
    "reasoning-delta": "reasoning",
    "tool-call-delta": "tool-call",
}
_ROW_KIND: dict[object, RunKind] = {
    "text-chunks": "text",
    "reasoning-chunks": "reasoning",
    "tool-call-chunks": "tool-call",
}
ROW_TYPES = frozenset(_ROW_KIND)
"""What stands in place of an event type in a row; no event can have it."""
_ROW_KEYS = {"type", "seq0", "time0", "data"}
_TEXT_KEYS = {"turn", "step", "index", "dt", "texts"}
_TOOL_KEYS = {"turn", "step", "index", "dt", "id", "args"}
_SPAN = range(-MAX_SAFE_INT, MAX_SAFE_INT + 1)


def is_row(value: object) -> bool:
    """True for a stored line that claims to be a packed run."""
    return isinstance(value, dict) and _row_kind(value.get("type")) is not None


def _row_kind(tag: object) -> RunKind | None:
    return _ROW_KIND.get(tag) if type(tag) is str else None


def row_to_run(row: JsonObject) -> ChunkRun:
    """The run behind a stored row, validated as a whole; the lists become the run's.

    Raises:
        InvalidEvent: any part of the row is malformed; the whole row is then one unparsable line.
    """
    kind = _row_kind(row.get("type"))
    if kind is None or row.keys() != _ROW_KEYS:
        raise InvalidEvent(f"chunk row: keys are type, seq0, time0, data, found {list(row)!r:.100}")
    data = row["data"]
    seq0, time0 = safe_int(row["seq0"]), safe_int(row["time0"])
    if seq0 is None or seq0 < 0 or time0 is None:
        raise InvalidEvent("chunk row: seq0 is a safe integer from 0 and time0 a safe integer")
    wanted = _TOOL_KEYS if kind == "tool-call" else _TEXT_KEYS
    if not isinstance(data, dict) or data.keys() - {"name"} != wanted:
        raise InvalidEvent(f"chunk row at seq {seq0}: data has exactly {', '.join(sorted(wanted))}")
    where = data["turn"], data["step"], data["index"]
    if not all(map(is_number, where)):
        raise InvalidEvent(f"chunk row at seq {seq0}: turn, step and index are numbers")
    call_id, name = data.get("id"), data.get("name")
    if kind == "tool-call":
        if type(call_id) is not str or ("name" in data and type(name) is not str):
            raise InvalidEvent(f"chunk row at seq {seq0}: id and name are strings")
    elif "name" in data:
        raise InvalidEvent(f"chunk row at seq {seq0}: only tool calls have a name")
    texts = data["args" if kind == "tool-call" else "texts"]
    if not isinstance(texts, list | tuple) or not texts or set(map(type, texts)) != {str}:
        raise InvalidEvent(f"chunk row at seq {seq0}: the texts are a list of one or more strings")
    dt = _gaps(data["dt"], len(texts) - 1, seq0)
    last_time = _last_time(time0, dt, seq0)
    if seq0 + len(texts) - 1 > MAX_SAFE_INT:
        raise InvalidEvent(f"chunk row at seq {seq0}: its last seq is no safe integer")
    turn, step, index = map(_whole, where)
    return ChunkRun(kind, seq0, (time0, last_time), (turn, step, index), dt, list(texts), call_id, name)


def _gaps(dt: object, count: int, seq0: int) -> list[int]:
    if not isinstance(dt, list | tuple) or len(dt) != count:
        raise InvalidEvent(f"chunk row at seq {seq0}: dt has one entry fewer than there are texts")
    if set(map(type, dt)) <= {int}:
        gaps: Sequence[int | None] = dt
    else:
        gaps = [safe_int(gap) for gap in dt]
    whole = [gap for gap in gaps if gap is not None and gap in _SPAN]
    if len(whole) != count:
        raise InvalidEvent(f"chunk row at seq {seq0}: dt holds safe integers")
    return whole


def _last_time(time0: int, dt: list[int], seq0: int) -> int:
    last = time0
    lowest = highest = time0
    for last in accumulate(dt, initial=time0):
        if last > highest:
            highest = last
        elif last < lowest:
            lowest = last
    if lowest not in _SPAN or highest not in _SPAN:
        raise InvalidEvent(f"chunk row at seq {seq0}: a time is no safe integer")
    return last


def _whole(number: Any) -> Any:
    whole = safe_int(number)
    return number if whole is None else whole


def run_of_event(event: SessionEvent) -> ChunkRun | None:
    """A run of one, when the event is a plain delta that may be packed; else None."""
    if event.type != "assistant/chunk" or event.ignorable or event.sources is not None or event.surface:
        return None
    data = event.data
    if not isinstance(data, FrozenDict) or data.keys() != {"turn", "step", "chunk"}:
        return None
    chunk = data["chunk"]
    if not isinstance(chunk, FrozenDict) or type(chunk.get("type")) is not str:
        return None
    kind = _DELTA_KIND.get(chunk["type"])
    if kind is None or not all(map(is_number, (data["turn"], data["step"], chunk.get("index")))):
        return None
    where = data["turn"], data["step"], chunk["index"]
    if kind == "tool-call":
        call_id, name, text = chunk.get("id"), chunk.get("name"), chunk.get("argumentsDelta")
        if chunk.keys() - {"name"} != {"type", "index", "id", "argumentsDelta"}:
            return None
        if type(call_id) is not str or type(text) is not str or ("name" in chunk and type(name) is not str):
            return None
        return ChunkRun(kind, event.seq, (event.time, event.time), where, [], [text], call_id, name)
    if chunk.keys() != {"type", "index", "text"} or type(chunk["text"]) is not str:
        return None
    return ChunkRun(kind, event.seq, (event.time, event.time), where, [], [chunk["text"]])


def pack(entries: Iterable[Entry]) -> Iterator[dict[str, Any]]:
    """The rows of one batch: runs of `MIN_RUN` or more packed, everything else an event.

    The answer depends on the events alone, not on how the log holds them in memory.
    """
    pending: list[ChunkRun] = []
    for entry in entries:
        run = entry if isinstance(entry, ChunkRun) else run_of_event(entry)
        if run is None:
            yield from _flush(pending)
            pending = []
            assert isinstance(entry, SessionEvent)
            yield entry.to_json()
        elif pending and _continues(pending[-1], run):
            pending.append(run)
        else:
            yield from _flush(pending)
            pending = [run]
    yield from _flush(pending)


def _continues(run: ChunkRun, following: ChunkRun) -> bool:
    return (
        following.seq0 == run.stop and run.same_block(following) and following.time0 - run.last_time in _SPAN
    )


def _flush(runs: list[ChunkRun]) -> Iterator[dict[str, Any]]:
    if not runs:
        return
    if sum(map(len, runs)) < MIN_RUN:
        for run in runs:
            for event in run.events():
                yield event.to_json()
        return
    yield join(runs).to_row()
