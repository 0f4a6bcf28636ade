"""Compares a run with a recording while it runs: event by event, up to the first that differs."""

from typing import Any

from msgspec import Struct

from dsh.session.chunk_run import ChunkRun, Entry, entry_start, entry_stop
from dsh.session.event import SessionEvent
from dsh.session.replay.comparable import ABSENT, Difference, Mask, comparable, first_difference
from dsh.session.replay.recording import GIVEN, Life, Recording, is_compared


class Divergence(Struct, frozen=True, kw_only=True, rename="camel"):
    """The first place where a replay is not what was recorded."""

    problem: str
    """One sentence."""
    seq: int | None = None
    """Of the recorded event; None after the last one."""
    turn: int | None = None
    step: int | None = None
    type: str | None = None
    """Of the recorded event."""
    path: str | None = None
    """Where in the event, when both have it."""
    recorded: Any = None
    replayed: Any = None


class Counts(Struct, rename="camel"):
    """How much was compared."""

    events: int = 0
    chunks: int = 0
    turns: int = 0
    steps: int = 0
    requests: int = 0
    tool_results: int = 0


class Cursor:
    """Stands in the recording of one life, before the event that has to come next.

    State: that place, the seqs of the run by those of the recording, how much was compared, the divergence.
    """

    def __init__(self, recording: Recording, life: Life, counts: Counts, mask: Mask) -> None:
        self._entries: list[Entry] = [
            entry for entry in recording.entries if life.start <= entry_start(entry) < life.stop
        ]
        self._at = 0
        self._inside = 0
        """Position in the packed run that `_at` names."""
        self.life = life
        self._mask = mask
        self._counts = counts
        self._places: dict[int, int] = {}
        self._turn: int | None = None
        self._step: int | None = None
        self.divergence: Divergence | None = None
        self._skip()

    @property
    def expected(self) -> SessionEvent | ChunkRun | None:
        """What has to come next, a packed run for one of its members; None at the end."""
        return self._entries[self._at] if self._at < len(self._entries) else None

    @property
    def expected_event(self) -> SessionEvent | None:
        """The same where it is no piece of a stream."""
        expected = self.expected
        return expected if isinstance(expected, SessionEvent) else None

    @property
    def position(self) -> int:
        """The seq of what has to come next."""
        expected = self.expected
        return self.life.stop if expected is None else entry_start(expected) + self._inside

    @property
    def is_at_end(self) -> bool:
        return self.expected is None

    def following(self) -> list[SessionEvent]:
        """The events from here on that are not packed, up to the first piece of a stream or the end of the
        step."""
        out: list[SessionEvent] = []
        for at in range(self._at, len(self._entries)):
            entry = self._entries[at]
            if isinstance(entry, ChunkRun) or entry.type == "assistant/chunk":
                break
            out.append(entry)
            if entry.type in ("step/end", "turn/end"):
                break
        return out

    def place(self, seq: int) -> int:
        """The recorded seq that a seq of the run stands for."""
        return seq if seq < self.life.given else self._places.get(seq, -1)

    def see_delta(self, seq: int) -> None:
        """A packed piece of a reply is in the log of the run."""
        expected = self.expected
        if self.divergence is not None:
            return
        if expected is None or not _is_delta(expected):
            self._part(f"the replay streams on where the recording has {_named(expected)}")
            return
        self._places[seq] = self.position
        self._counts.events += 1
        self._counts.chunks += 1
        self._advance()

    def see(self, event: SessionEvent) -> None:
        """An event is in the log of the run."""
        if self.divergence is not None or not is_compared(event):
            return
        expected = self.expected
        if event.type in GIVEN and not self._is_expected(event):
            return  # a setting that this composition writes down and the recorded one did not
        if expected is None or isinstance(expected, ChunkRun) or expected.type != event.type:
            self._part(
                f"the recording has {_named(expected)}, the replay {event.type}",
                recorded=None if isinstance(expected, ChunkRun | None) else expected.data,
                replayed=event.data,
            )
            return
        self._places[event.seq] = expected.seq
        difference = self._compared(expected, event)
        if difference is not None:
            self._part(f"{event.type} differs", difference)
            return
        self._count(event)
        self._advance()

    def stopped(self, problem: str) -> None:
        """The run does not go on as the recording does."""
        if self.divergence is None:
            self._part(problem)

    def _is_expected(self, event: SessionEvent) -> bool:
        expected = self.expected_event
        return expected is not None and expected.type == event.type and not self._compared(expected, event)

    def _compared(self, expected: SessionEvent, event: SessionEvent) -> Difference | None:
        here = comparable(expected, _itself, self._mask)
        there = comparable(event, self.place, self._mask)
        return first_difference(here, there)

    def _count(self, event: SessionEvent) -> None:
        counts, data = self._counts, event.data
        counts.events += 1
        match event.type:
            case "turn/start":
                counts.turns += 1
                self._turn, self._step = data["turn"], None
            case "step/start":
                counts.steps += 1
                self._step = data["step"]
            case "step/end":
                self._step = None
            case "turn/end":
                self._turn = None
            case "assistant/chunk":
                counts.chunks += 1
                counts.requests += data["chunk"]["type"] == "finish"
            case "compaction/summary":
                counts.requests += bool(data.get("llmStreamCall"))
            case "tool/result":
                counts.tool_results += 1

    def _part(self, problem: str, difference: Difference | None = None, **told: Any) -> None:
        expected = self.expected
        data = expected.data if isinstance(expected, SessionEvent) else None
        turn, step = self._turn, self._step
        if isinstance(data, dict):
            turn, step = data.get("turn", turn), data.get("step", step)
        if difference is not None:
            told = {
                "path": difference.path,
                "recorded": None if difference.recorded is ABSENT else difference.recorded,
                "replayed": None if difference.replayed is ABSENT else difference.replayed,
            }
        self.divergence = Divergence(
            problem=problem,
            seq=None if expected is None else self.position,
            turn=turn,
            step=step,
            type=None if expected is None else _type(expected),
            **told,
        )

    def _advance(self) -> None:
        self._inside += 1
        expected = self._entries[self._at]
        if entry_start(expected) + self._inside >= entry_stop(expected):
            self._at, self._inside = self._at + 1, 0
            self._skip()

    def _skip(self) -> None:
        """Pass over what is not compared."""
        while (event := self.expected_event) is not None and not is_compared(event):
            self._at += 1


def _itself(seq: int) -> int:
    return seq


def _is_delta(entry: Entry) -> bool:
    if isinstance(entry, ChunkRun):
        return True
    return entry.type == "assistant/chunk" and str(entry.data["chunk"].get("type")).endswith("-delta")


def _type(entry: Entry) -> str:
    return "assistant/chunk" if isinstance(entry, ChunkRun) else entry.type


def _named(entry: Entry | None) -> str:
    return "ended" if entry is None else _type(entry)
