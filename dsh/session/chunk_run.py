"""A packed run of stream deltas: one object in memory for many events of a log."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

from dsh.session.error import InvalidEvent
from dsh.session.event import SessionEvent
from dsh.session.value import MAX_SAFE_INT, freeze

RunKind: TypeAlias = Literal["text", "reasoning", "tool-call"]


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
        numbers = {"turn": self.turn, "step": self.step, "chunk": chunk}
        data = freeze(numbers, "assistant/chunk", stored=True)
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


def check_delta(kind: RunKind, turn: int, step: int, index: int, call_id: object) -> None:
    """Refuse a delta that could not be read back.

    Raises:
        InvalidEvent: a number is none, or the id of a call no string.
    """
    has_numbers = all(type(number) is int and 0 <= number <= MAX_SAFE_INT for number in (turn, step, index))
    if not has_numbers or (kind == "tool-call") != (type(call_id) is str):
        raise InvalidEvent(
            "assistant/chunk: turn, step and index are safe integers from 0, the id of a call is a string, "
            f"found {turn!r:.40}, {step!r:.40}, {index!r:.40}, {call_id!r:.40}"
        )


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
