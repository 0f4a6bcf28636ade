"""Packed runs of stream deltas: one object in memory and one row on disk for many events.

A run holds consecutive `assistant/chunk` events that differ only in time and text. Rows are an encoding of
storage; nobody but the log, its writers and its readers sees them (`spec/session-log.md` §11).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, TypeAlias

from dsh.session.error import InvalidEvent
from dsh.session.event import SessionEvent
from dsh.session.value import MAX_SAFE_INT, FrozenDict, JsonObject, freeze, is_number, safe_int

MIN_RUN = 3
"""Writers pack a run of this many members or more; readers take any length from 1."""

RunKind: TypeAlias = Literal["text", "reasoning", "tool-call"]

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
_ROW_KEYS = {"type", "seq0", "time0", "data"}
_TEXT_KEYS = {"turn", "step", "index", "dt", "texts"}
_TOOL_KEYS = {"turn", "step", "index", "dt", "id", "args"}
_SPAN = range(-MAX_SAFE_INT, MAX_SAFE_INT + 1)


class ChunkRun:
    """Consecutive deltas of one block, packed. Only the last entry of a live log may still grow."""

    __slots__ = (
        "call_id",
        "dt",
        "index",
        "kind",
        "last_time",
        "name",
        "seq0",
        "step",
        "texts",
        "time0",
        "turn",
    )

    def __init__(
        self,
        kind: RunKind,
        seq0: int,
        times: tuple[int, int],
        where: tuple[int, int, int],
        dt: list[int],
        texts: list[str],
        call_id: str | None = None,
        name: str | None = None,
    ) -> None:
        """`times` are those of the first and the last member, `where` is turn, step and block index."""
        self.kind = kind
        self.seq0 = seq0
        self.time0, self.last_time = times
        self.turn, self.step, self.index = where
        self.dt = dt
        """Milliseconds from each member to the next; may be negative; one fewer than members."""
        self.texts = texts
        """Text or raw argument text of each member."""
        self.call_id = call_id
        self.name = name

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"<ChunkRun {self.kind} seq {self.seq0}..{self.stop - 1}>"

    @property
    def stop(self) -> int:
        """The seq after the last member."""
        return self.seq0 + len(self.texts)

    def same_block(self, other: "ChunkRun") -> bool:
        """True when both hold deltas of one block under one name."""
        return (
            self.kind == other.kind
            and self.turn == other.turn
            and self.step == other.step
            and self.index == other.index
            and self.call_id == other.call_id
            and self.name == other.name
        )

    def slice(self, start: int, stop: int | None = None) -> "ChunkRun":
        """The members from `start` up to `stop` (positions in the run) as a run that never grows."""
        stop = len(self.texts) if stop is None else stop
        dt = self.dt[start : stop - 1]
        first = self.time0 + sum(self.dt[:start])
        return ChunkRun(
            self.kind,
            self.seq0 + start,
            (first, first + sum(dt)),
            (self.turn, self.step, self.index),
            dt,
            self.texts[start:stop],
            self.call_id,
            self.name,
        )

    def event(self, position: int) -> SessionEvent:
        """The member at a position, as the event it stands for."""
        return self._event(position, self.time0 + sum(self.dt[:position]))

    def events(self, start: int = 0, stop: int | None = None) -> Iterator[SessionEvent]:
        """The members as events, made one at a time."""
        stop = len(self.texts) if stop is None else stop
        time = self.time0 + sum(self.dt[:start])
        for position in range(start, stop):
            yield self._event(position, time)
            if position + 1 < stop:
                time += self.dt[position]

    def _event(self, position: int, time: int) -> SessionEvent:
        text = self.texts[position]
        chunk: dict[str, Any]
        if self.kind == "tool-call":
            chunk = {"type": "tool-call-delta", "index": self.index, "id": self.call_id}
            if self.name is not None:
                chunk["name"] = self.name
            chunk["argumentsDelta"] = text
        else:
            chunk = {"type": f"{self.kind}-delta", "index": self.index, "text": text}
        data = freeze({"turn": self.turn, "step": self.step, "chunk": chunk}, "assistant/chunk")
        return SessionEvent("assistant/chunk", self.seq0 + position, time, data)

    def to_row(self) -> dict[str, Any]:
        """The row of this run, keys in written order."""
        data: dict[str, Any] = {"turn": self.turn, "step": self.step, "index": self.index, "dt": self.dt}
        if self.kind == "tool-call":
            data["id"] = self.call_id
            if self.name is not None:
                data["name"] = self.name
            data["args"] = self.texts
        else:
            data["texts"] = self.texts
        return {"type": f"{self.kind}-chunks", "seq0": self.seq0, "time0": self.time0, "data": data}


Entry: TypeAlias = SessionEvent | ChunkRun
"""What a log is made of in memory: events, and runs that stand for many events."""


def entry_start(entry: Entry) -> int:
    """The seq of the first event of an entry."""
    return entry.seq0 if isinstance(entry, ChunkRun) else entry.seq


def entry_stop(entry: Entry) -> int:
    """The seq after the last event of an entry."""
    return entry.stop if isinstance(entry, ChunkRun) else entry.seq + 1


def is_row(value: object) -> bool:
    """True for a stored line that claims to be a packed run."""
    return isinstance(value, Mapping) and _row_kind(value.get("type")) is not None


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
    if not isinstance(data, Mapping) or data.keys() - {"name"} != wanted:
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


def check_delta(kind: RunKind, turn: int, step: int, index: int, call_id: object) -> None:
    """Refuse a delta that could not be read back.

    Raises:
        InvalidEvent: a number is none, or the id of a call no string.
    """
    if {type(turn), type(step), type(index)} != {int} or (kind == "tool-call") != (type(call_id) is str):
        raise InvalidEvent(
            "assistant/chunk: turn, step and index are integers and the id of a call is a string, "
            f"found {turn!r:.40}, {step!r:.40}, {index!r:.40}, {call_id!r:.40}"
        )


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


def join(runs: Sequence[ChunkRun]) -> ChunkRun:
    """Runs that continue each other as one."""
    first = runs[0]
    if len(runs) == 1:
        return first
    dt, texts, last = list(first.dt), list(first.texts), first.last_time
    for run in runs[1:]:
        dt.append(run.time0 - last)
        dt.extend(run.dt)
        texts.extend(run.texts)
        last = run.last_time
    where = first.turn, first.step, first.index
    return ChunkRun(first.kind, first.seq0, (first.time0, last), where, dt, texts, first.call_id, first.name)


def expand(entries: Iterable[Entry]) -> Iterator[SessionEvent]:
    """The events of entries, runs unpacked one event at a time."""
    for entry in entries:
        if isinstance(entry, ChunkRun):
            yield from entry.events()
        else:
            yield entry
