"""When the steps and tools of a session ran: spans taken from a log, and how they are drawn.

The time of a log is a wall clock, which may go backwards. Here it is a time that never does: an event that
stands before the one in front of it counts as at the same moment, and what comes after goes on from there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from dsh.cli.columns import cut, padded, width
from dsh.cli.sessions.output import line
from dsh.cli.sessions.terminal import Look, Style
from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.event import SessionEvent

LABEL = 22
"""Columns for the names before the bars."""
AMOUNT = 9
"""Columns for the durations behind them."""
NARROWEST_BAR = 10
COLUMNS = 100
"""Width of the drawing where there is no terminal."""
MODEL, FAILED, TOOL, WAITING = "█", "▒", "▓", "·"


class Span(Struct, frozen=True, rename="camel"):
    """Something that took time. Milliseconds since the first event, as described above."""

    name: str
    """Of the tool; of a request `model`, or `failed` if it brought no message."""
    start_ms: int
    end_ms: int
    is_error: bool = False


class StepTimes(Struct, frozen=True, rename="camel"):
    """One step: its requests, and its calls in the order in which they were started."""

    turn: int
    step: int
    start_ms: int
    end_ms: int
    requests: tuple[Span, ...]
    calls: tuple[Span, ...]


class TurnTimes(Struct, frozen=True, rename="camel"):
    """One turn."""

    turn: int
    start_ms: int
    end_ms: int
    reason: str | None
    """Why it ended; None where it did not."""
    steps: tuple[StepTimes, ...]


def timeline(entries: Iterable[Entry]) -> list[TurnTimes]:
    """The turns of a log. Costs one pass; packed runs stay packed.

    What is under way where the log ends has not failed; it is drawn up to there.
    """
    reading = _Reading()
    for entry in entries:
        reading.see(entry)
    reading.end()
    return reading.turns


class _Reading:
    """Follows a log. State: the time that never goes back, and what is open."""

    def __init__(self) -> None:
        self.turns: list[TurnTimes] = []
        self._clock: int | None = None
        self._now = 0
        self._turn: tuple[int, int] | None = None
        """Number and start."""
        self._steps: list[StepTimes] = []
        self._step: tuple[int, int] | None = None
        self._asked: int | None = None
        """When the request began that has no message yet."""
        self._requests: list[Span] = []
        self._calls: list[Span] = []
        self._open: dict[str, tuple[str, int, int]] = {}
        """Name, start and position of the calls without result."""

    def see(self, entry: Entry) -> None:
        """Take the next entry."""
        if isinstance(entry, ChunkRun) or entry.type == "assistant/chunk":
            return  # recorded ones have times of their own, and a span needs its ends alone
        self._move(entry.time)
        data = entry.data if isinstance(entry.data, Mapping) else {}
        match entry.type:
            case "turn/start":
                self.end_turn(None)
                self._turn = _number(data, "turn"), self._now
            case "turn/end":
                reason = data.get("reason")
                self.end_turn(str(reason.get("kind")) if isinstance(reason, Mapping) else None)
            case "step/start":
                self._end_step()
                self._step, self._asked = (_number(data, "step"), self._now), self._now
            case "step/end":
                self._end_step()
            case "llm/retry":
                self._answered("failed")
            case "llm/retry-started":
                self._asked = self._now
            case "assistant/message" if entry.surface == "append":
                self._answered("model")
            case "tool/call":
                self._call(data)
            case "tool/result" if entry.surface == "append":
                self._result(entry)

    def _move(self, clock: int) -> None:
        if self._clock is not None:
            self._now += max(clock - self._clock, 0)
        self._clock = clock

    def _answered(self, name: str) -> None:
        if self._asked is not None:
            self._requests.append(Span(name, self._asked, self._now, name == "failed"))
            self._asked = None

    def _call(self, data: Mapping[str, Any]) -> None:
        call_id, name = str(data.get("callId")), str(data.get("name"))
        self._open[call_id] = name, self._now, len(self._calls)
        self._calls.append(Span(name, self._now, self._now))

    def _result(self, event: SessionEvent) -> None:
        message = event.data["message"]
        found = self._open.pop(message["source"]["callId"], None)
        if found is not None:
            name, start, position = found
            is_error = "error" in event.data or message["content"][0].get("isError") is True
            self._calls[position] = Span(name, start, self._now, is_error)

    def end(self) -> None:
        """The log ends here, and with it what is open."""
        if self._step is not None:
            self._answered("model")
            for name, start, position in self._open.values():
                self._calls[position] = Span(name, start, self._now)
            self._open.clear()
        self.end_turn(None)

    def _end_step(self) -> None:
        if self._step is None:
            return
        self._answered("failed")
        for name, start, position in self._open.values():  # no result came; it ran until here at most
            self._calls[position] = Span(name, start, self._now, is_error=True)
        number, start = self._step
        turn = self._turn[0] if self._turn is not None else 0
        done = StepTimes(turn, number, start, self._now, tuple(self._requests), tuple(self._calls))
        self._steps.append(done)
        self._step = None
        self._requests, self._calls = [], []
        self._open.clear()

    def end_turn(self, reason: str | None) -> None:
        """Close the turn that is open, if one is."""
        self._end_step()
        if self._turn is not None:
            number, start = self._turn
            self.turns.append(TurnTimes(number, start, self._now, reason, tuple(self._steps)))
        self._turn = None
        self._steps = []


def _column(ms: float) -> str:
    return duration(ms) if ms >= 10 else f"{ms:.1f} ms"


def drawn(turns: Sequence[TurnTimes], look: Look) -> Iterator[str]:
    """The timeline as lines. Time between turns is left out, so that a night does not hide the day."""
    active = sum(turn.end_ms - turn.start_ms for turn in turns)
    room = max((look.columns or COLUMNS) - LABEL - AMOUNT - 2, NARROWEST_BAR)
    if not turns:
        return
    scale = _Scale(room, max(active, 1))
    legend = f"{MODEL} model  {FAILED} failed  {TOOL} tool  {WAITING} the rest of a step"
    yield f"{look.styled('head', 'timeline')}  {duration(active)}, a column is {_column(scale.column_ms)}\n"
    yield f"{look.styled('dim', legend)}\n"
    before, last_end = 0, turns[0].start_ms
    for turn in turns:
        shift = turn.start_ms - before
        took = turn.end_ms - turn.start_ms
        later = turn.start_ms - last_end
        idle = f", {duration(later)} later" if later >= 1000 else ""
        head = f"turn {turn.turn}: {line(turn.reason or 'no end')} in {duration(took)}{idle}"
        yield f"{look.styled('dim', head)}\n"
        for step in turn.steps:
            yield from _step_lines(step, shift, scale, look)
        before, last_end = before + took, turn.end_ms


class _Scale:
    """From milliseconds to columns."""

    def __init__(self, room: int, total_ms: int) -> None:
        self.room = room
        self._total_ms = total_ms
        self.column_ms = total_ms / room

    def columns(self, start_ms: int, end_ms: int) -> range:
        """The columns of a span: one at least, all of them inside."""
        first = min(start_ms * self.room // self._total_ms, self.room - 1)
        stop = -(-end_ms * self.room // self._total_ms)
        return range(first, min(max(stop, first + 1), self.room))


def _step_lines(step: StepTimes, shift: int, scale: _Scale, look: Look) -> Iterator[str]:
    bar = [" "] * scale.room
    _fill(bar, scale.columns(step.start_ms - shift, step.end_ms - shift), WAITING)
    for request in step.requests:
        mark = FAILED if request.is_error else MODEL
        _fill(bar, scale.columns(request.start_ms - shift, request.end_ms - shift), mark)
    took = step.end_ms - step.start_ms
    yield _row(f"{step.turn}.{step.step} model", "".join(bar), duration(took), look, "model")
    for lane in lanes(step.calls):
        bar = [" "] * scale.room
        for call in lane:
            mark = FAILED if call.is_error else TOOL
            _fill(bar, scale.columns(call.start_ms - shift, call.end_ms - shift), mark)
        names = ", ".join(dict.fromkeys(line(call.name) for call in lane))
        count = f" ×{len(lane)}" if len(lane) > 1 else ""
        label = cut(names, LABEL - 4 - width(count)) + count
        took = sum(call.end_ms - call.start_ms for call in lane)
        style: Style = "bad" if any(call.is_error for call in lane) else "tool"
        yield _row(f"    {label}", "".join(bar), duration(took), look, style)


def lanes(calls: Iterable[Span]) -> list[list[Span]]:
    """The calls in as few lines as there are at one time: those that overlap are never in one."""
    found: list[list[Span]] = []
    for call in sorted(calls, key=lambda span: span.start_ms):
        free = next((lane for lane in found if lane[-1].end_ms <= call.start_ms), None)
        if free is None:
            found.append([call])
        else:
            free.append(call)
    return found


def _fill(bar: list[str], columns: range, mark: str) -> None:
    for column in columns:
        bar[column] = mark


def _row(label: str, bar: str, amount: str, look: Look, style: Style) -> str:
    return f"{padded(cut(label, LABEL), LABEL)} {look.styled(style, bar)} {amount:>{AMOUNT}}\n"


def duration(ms: float) -> str:
    """`350 ms`, `1.2 s`, `2 m 05 s`, `3 h 04 m`, `5 d`."""
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 59_950:
        return f"{ms / 1000:.1f} s"
    seconds = round(ms / 1000)
    if seconds < 3600:
        return f"{seconds // 60} m {seconds % 60:02} s"
    minutes = round(ms / 60_000)
    if minutes >= 100 * 60:
        return f"{minutes // (24 * 60)} d"
    return f"{minutes // 60} h {minutes % 60:02} m"


def _number(data: Mapping[str, Any], key: str) -> int:
    value = data.get(key)
    return value if type(value) is int else 0
