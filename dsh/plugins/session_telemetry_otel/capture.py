"""From the log to records: what of it is handed over, once, and in which form.

Of a streamed reply only the first piece of each step is handed over, so that gaps in `seq` are normal.
Nothing here waits or fails: a record that cannot be made is withheld, and told once.
"""

import weakref
from collections.abc import Callable
from typing import Any

from dsh.agent.contract import AgentFailed
from dsh.capabilities.session_telemetry import FEEDBACK, TELEMETRY_RECORD, Severity, TelemetryRecord
from dsh.kernel import Context
from dsh.session.chunk_run import ChunkRun, Entry, entry_start
from dsh.session.event import SessionEvent
from dsh.session.log import Session, now_ms
from dsh.session.store import Appended

CHUNK = "assistant/chunk"
Emit = Callable[[TelemetryRecord], None]
"""Takes a record at once and without waiting."""


class _Flow:
    """How far one session has been handed over. Holds no session, so that it goes with it."""

    __slots__ = ("chunk_of", "cursor")

    def __init__(self, cursor: int) -> None:
        self.cursor = cursor
        self.chunk_of: tuple[int, int] | None = None
        """The turn and step whose first piece was handed over last."""


_flows: "weakref.WeakKeyDictionary[Session, _Flow]" = weakref.WeakKeyDictionary()
"""Outlives the row: one that is mounted again goes on where the former stopped."""


class Capture:
    """Hands the logs of live sessions over. State: how far each is, and whether trouble was told."""

    def __init__(self, ctx: Context, emit: Emit, *, only_feedback: bool) -> None:
        """`only_feedback`: hand over nothing until feedback is recorded, then everything up to it."""
        self._ctx = ctx
        self._emit = emit
        self._only_feedback = only_feedback
        self._following: dict[str, tuple[Session, _Flow]] = {}
        self.withheld = 0
        """Records that a rule refused by failing."""

    def follow(self, session: Session) -> None:
        """Begin with what this process adds, or where a former row stopped."""
        flow = _flows.setdefault(session, _Flow(session.first_live_seq))
        self._following[session.id] = session, flow
        if not self._only_feedback:
            self._advance(session, flow, session.length)
        elif (last := session.last(FEEDBACK)) is not None:
            self._advance(session, flow, last.seq + 1)

    def appended(self, appended: Appended) -> None:
        """A live log has grown. The packed deltas before this event are looked at with it, as runs."""
        session = appended.session
        if self._only_feedback and appended.event.type != FEEDBACK:
            return
        if (following := self._following.get(session.id)) is None or following[0] is not session:
            self.follow(session)
        else:
            self._advance(session, following[1], appended.seq + 1)

    def _advance(self, session: Session, flow: _Flow, stop: int) -> None:
        if flow.cursor >= stop:
            return
        for entry in session.entries(flow.cursor):
            if entry_start(entry) >= stop:
                break
            flow.cursor = min(stop, entry.stop if isinstance(entry, ChunkRun) else entry.seq + 1)
            if (event := _first_of_step(entry, flow)) is not None:
                self._hand_over(lambda event=event: ledger_record(session, event))  # type: ignore[misc]

    def agent_failed(self, failed: AgentFailed) -> None:
        if self._only_feedback:
            return
        name, message = type(failed.error).__name__, str(failed.error)
        attributes: dict[str, str | int] = {
            "telemetry.op": "agent-error",
            "session.id": failed.agent.session.id,
            "agent.id": failed.agent.id,
            "turn": failed.turn,
            "step": failed.step,
            "error.name": name,
        }
        self._hand_over(lambda: _ops("error", attributes, {"name": name, "message": message}))

    def disposed(self, session: Session) -> None:
        """The session is over."""
        following = self._following.pop(session.id, None)
        if following is None or following[0] is not session or self._only_feedback:
            return
        self._advance(*following, session.length)
        attributes: dict[str, str | int] = {"telemetry.op": "shutdown", "session.id": session.id}
        self._hand_over(lambda: _ops("info", attributes, {"op": "shutdown"}))

    def end(self) -> None:
        """The row goes: the same for every session that is still live."""
        for session, _ in list(self._following.values()):
            self.disposed(session)

    def _hand_over(self, make: Callable[[], TelemetryRecord]) -> None:
        try:
            record = make()
            ruled = self._ctx.waterfall(TELEMETRY_RECORD, record, lambda: record)
            if ruled is not None:
                self._emit(ruled)
        except Exception as error:
            self.withheld += 1
            if self.withheld == 1:
                self._ctx.logger.warning("a telemetry record was withheld: %s", error)


def _first_of_step(entry: Entry, flow: _Flow) -> SessionEvent | None:
    """The event to hand over of an entry; None for a piece of a reply that is not its step's first."""
    if isinstance(entry, ChunkRun):
        step = entry.turn, entry.step
    elif entry.type == CHUNK:
        step = entry.data["turn"], entry.data["step"]
    else:
        return entry
    if flow.chunk_of == step:
        return None
    flow.chunk_of = step
    return entry.event(0) if isinstance(entry, ChunkRun) else entry


def ledger_record(session: Session, event: SessionEvent) -> TelemetryRecord:
    """A logged event as a record; the payload is shared, not copied, for it never changes."""
    header = session.header
    attributes: dict[str, str | int] = {
        "session.id": session.id,
        "event.type": event.type,
        "event.seq": event.seq,
    }
    if header.cwd is not None:
        attributes["session.cwd"] = header.cwd
    if header.parent_session is not None:
        attributes["session.parent_id"] = header.parent_session
    if header.seed_length is not None:
        attributes["session.seed_length"] = header.seed_length
    return TelemetryRecord(
        channel="ledger",
        time=event.time,
        severity="error" if _is_error(event) else "info",
        attributes=attributes,
        body=event.data,
    )


def _is_error(event: SessionEvent) -> bool:
    if event.type == "turn/end":
        return bool(event.data["reason"]["kind"] == "error")
    if event.type == "tool/result":
        return "error" in event.data or any(
            block.get("isError") is True for block in event.data["message"]["content"]
        )
    return False


def _ops(severity: Severity, attributes: dict[str, str | int], body: Any) -> TelemetryRecord:
    return TelemetryRecord(channel="ops", time=now_ms(), severity=severity, attributes=attributes, body=body)
