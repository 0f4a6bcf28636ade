"""A recorded session as the material of a replay: its lives, and where it was cancelled.

Each process that went on with a session is one life of it. The log marks where a life begins
(`session/end-seed`); what stands before is given to that life as it is. Pure: entries go in, facts come out.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.log import END_SEED
from dsh.session.value import JsonObject

GIVEN = frozenset({"permission/preset", "sandbox/mode", "approval/policy"})
"""What a new session's log begins with: settings of the place where it ran."""
TITLES = frozenset({"session/title", "session/title-llm-request"})
"""Written beside the turns, whenever their answer comes: their place in the log says nothing."""
SEARCHES = frozenset({"web/deepseek-search-llm-request"})
"""Written by a tool while it is at work, beside other tools; a recorded tool searches nothing."""
HOOKS = frozenset({"hook/invoked", "hook/result"})
"""Written by rows that run programs; where tools are recorded, they run none."""
SPLICED = "agent/inbox/spliced"
_NOT_COMPARED = TITLES | SEARCHES | HOOKS
_REPAIRED = frozenset({"TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED"})


class Life(Struct, frozen=True, kw_only=True):
    """A part of a log that one process wrote."""

    given: int
    """So many events are there when it begins."""
    start: int
    """The seq of the first event that it makes."""
    stop: int
    """The seq after the last one."""
    is_cut: bool = False
    """The process died in the middle of a turn: what follows is repair, and nobody's doing."""


class Cancellation(Struct, frozen=True, kw_only=True):
    """Somebody stopped a turn."""

    seq: int
    """The first event that would not be there, or not so, without it."""
    turn: int
    cause: JsonObject
    keeps_inbox: bool
    """What waited for the agent waits on."""
    is_in_tool: bool = False
    """A tool was at work, and was stopped."""


class Recording:
    """One session log, read whole. Immutable."""

    def __init__(self, header: SessionHeader, entries: Iterable[Entry]) -> None:
        """`entries` with the closers of a turn that has no end, as a repaired view holds them."""
        self.header = header
        self.entries: Sequence[Entry] = tuple(entries)
        self.marks: Sequence[SessionEvent] = tuple(e for e in self.entries if not isinstance(e, ChunkRun))
        """The events that are not packed, in order."""
        last = self.entries[-1] if self.entries else None
        self.length = 0 if last is None else last.stop if isinstance(last, ChunkRun) else last.seq + 1
        self.lives = tuple(_lives(self))
        self.cancellations = tuple(_cancellations(self.marks))

    def before(self, seq: int) -> list[Entry]:
        """The entries below a seq that lies between two of them, or inside a packed run."""
        out: list[Entry] = []
        for entry in self.entries:
            if isinstance(entry, ChunkRun):
                if entry.seq0 >= seq:
                    break
                out.append(entry if entry.stop <= seq else entry.slice(0, seq - entry.seq0))
            elif entry.seq >= seq:
                break
            else:
                out.append(entry)
        return out


def is_compared(event: SessionEvent) -> bool:
    """Whether a replay has to make this event again, in its place."""
    return not event.ignorable and event.type not in _NOT_COMPARED


def _lives(recording: Recording) -> Iterable[Life]:
    marks, seeded = recording.marks, recording.header.seed_length
    borders = [event.seq for event in marks if event.type == END_SEED and event.seq >= (seeded or 0)]
    if seeded is None and not (borders and borders[0] == 0):
        given = _given(marks)
        yield _life(marks, given, given, borders[0] if borders else recording.length)
    for border, stop in zip(borders, [*borders, recording.length][1:], strict=True):
        yield _life(marks, border, border + 1, stop)


def _given(marks: Sequence[SessionEvent]) -> int:
    """How many events a first life begins with."""
    for expected, event in enumerate(marks):
        if event.seq != expected or event.type not in GIVEN:
            return expected
    return len(marks)


def _life(marks: Sequence[SessionEvent], given: int, start: int, stop: int) -> Life:
    inside = [event for event in marks if start <= event.seq < stop]
    ends = [at for at, event in enumerate(inside) if event.type == "turn/end"]
    if not ends or inside[ends[-1]].data["reason"].get("kind") != "interrupted":
        return Life(given=given, start=start, stop=stop)
    at = ends[-1]
    while at and _is_repair(inside[at - 1]):
        at -= 1
    return Life(given=given, start=start, stop=inside[at].seq, is_cut=True)


def _is_repair(event: SessionEvent) -> bool:
    if event.type == "tool/result":
        return _code(event) in _REPAIRED
    return event.type == "step/end"


def _cancellations(marks: Sequence[SessionEvent]) -> Iterable[Cancellation]:
    waited: set[str] = set()
    put_back: set[int] = set()
    for at, event in enumerate(marks):
        if event.type == SPLICED and event.data["inserted"]:
            ids = {str(message["id"]) for message in event.data["inserted"]}
            if ids <= waited:
                put_back.add(event.seq)
            waited |= ids
        elif event.type == "turn/end" and event.data["reason"].get("kind") == "aborted":
            yield _cancellation(marks, at, put_back)


def _cancellation(marks: Sequence[SessionEvent], end: int, put_back: set[int]) -> Cancellation:
    """The cancellation behind the aborted turn that ends here: what follows from it is walked back."""
    event, first, drops, keeps = marks[end], end, False, False
    unstarted: set[str] = set()
    while first:
        before = marks[first - 1]
        is_put_back = before.seq in put_back
        if is_compared(before) and not is_put_back and not _follows(before, unstarted):
            break
        drops = drops or (before.type == SPLICED and not is_put_back)
        keeps = keeps or is_put_back
        first -= 1
    while not is_compared(marks[first]):
        first += 1
    cause = event.data["reason"].get("reason") or {"kind": "user"}
    is_limit = str(cause.get("reason", "")).startswith("limit:") or cause.get("kind") == "disposed"
    stopped = marks[first]
    return Cancellation(
        seq=stopped.seq,
        is_in_tool=any(e.type == "tool/result" and _code(e) == "ABORTED" for e in marks[first:end]),
        turn=event.data["turn"],
        cause=cause,
        keeps_inbox=not drops and (keeps or is_limit),
    )


def _follows(event: SessionEvent, unstarted: set[str]) -> bool:
    """Whether an event right before the end of an aborted turn is there because of the cancellation."""
    data: Any = event.data
    match event.type:
        case "step/end":
            return True
        case "assistant/message":
            return bool(data.get("interrupted"))
        case "tool/result":
            code = _code(event)
            if code == "ABORTED_BEFORE_DISPATCH":
                unstarted.add(str(data["message"]["source"].get("callId")))
            return code in ("ABORTED", "ABORTED_BEFORE_DISPATCH")
        case "tool/call":
            return data.get("callId") in unstarted
        case "agent/inbox/spliced":
            return data.get("outcome") == "canceled" and not data["inserted"]
        case "approval/decided":
            return bool(data.get("outcome") == "cancelled")
        case "compaction/end":
            return bool(data.get("error"))
    return False


def _code(result: SessionEvent) -> str | None:
    """The code of a failed `tool/result`."""
    code: str | None = (result.data.get("error") or {}).get("code")
    return code
