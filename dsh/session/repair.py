"""Closes what a crash left open, so that the log can be continued (`spec/session-log.md` §13).

The closers follow from the log alone; computing them twice gives nothing the second time. Calls of the last
step get their results also where that step has closed over them, as long as no other step began; what is
older is mended in the request. Brackets of plugins (compaction, approvals, commands, hooks, workflows) are
their owners' to close.
"""

from collections.abc import Iterator
from typing import Any

from dsh.session.chunk_run import ChunkRun, Entry
from dsh.session.event import RepairEvent, SessionEvent
from dsh.session.relations import calls_in
from dsh.session.value import JsonObject, freeze, safe_int

_UNKNOWN_OUTCOME = (
    "The session was interrupted while this call was running and no result was recorded, so its outcome is "
    "unknown. Call it again only if it just reads or can safely be repeated. Otherwise first check the state "
    "it may have changed, or ask the user; do not repeat it blindly."
)
_NOT_STARTED = (
    "The session was interrupted before this call was recorded as started. "
    "Call it again if it is still needed."
)
_FOLLOWED = (
    "turn/start",
    "turn/end",
    "step/start",
    "step/end",
    "assistant/message",
    "tool/call",
    "tool/result",
)
"""The types that open or close something."""


class _Call:
    """A tool call of the model that has no result: the step it belongs to, and where it was started."""

    __slots__ = ("call_seq", "is_left", "step")

    def __init__(self, step: Any) -> None:
        self.step = step
        self.call_seq: int | None = None
        self.is_left = False
        """Its step has closed over it."""


class OpenEnds:
    """What is open after the entries seen so far. They need not have been validated.

    Closers made from wrong numbers are as wrong as these; the validation of the whole finds both.
    """

    def __init__(self) -> None:
        self._seq = 0
        self._time = 0
        self._turn: Any = None
        self._step: Any = None
        self._has_turn = self._has_step = False
        self._calls: dict[str, _Call] = {}

    def see(self, entry: JsonObject | Entry) -> None:
        """Take the next entry into account."""
        if isinstance(entry, ChunkRun):
            self._seq, self._time = entry.stop, entry.last_time
            return
        fields = entry.to_json() if isinstance(entry, SessionEvent) else entry
        kind = fields.get("type")
        if kind in _FOLLOWED and isinstance(data := fields.get("data"), dict):
            self._follow(kind, data)
        self._seq, self._time = self._seq + 1, safe_int(fields.get("time")) or 0

    def _follow(self, kind: object, data: JsonObject) -> None:
        match kind:
            case "turn/start":
                self._has_turn, self._turn = True, data.get("turn")
                self._has_step = False
                self._calls.clear()
            case "turn/end":
                self._has_turn = self._has_step = False
                self._calls.clear()
            case "step/start":
                self._has_step, self._step = True, data.get("step")
                self._calls = {call_id: call for call_id, call in self._calls.items() if not call.is_left}
            case "step/end":
                self._has_step = False
                for open_call in self._calls.values():
                    open_call.is_left = True
            case "assistant/message":
                for call_id in calls_in(data.get("message")):
                    self._calls[call_id] = _Call(data.get("step"))
            case "tool/call":
                call = self._calls.get(str(data.get("callId")))
                if call is not None:
                    call.call_seq = self._seq
            case "tool/result":
                self._calls.pop(_answered(data.get("message")), None)

    def closers(self) -> list[RepairEvent]:
        """The events that close the open turn; none where no turn is open."""
        return list(self._close()) if self._has_turn else []

    def _close(self) -> Iterator[RepairEvent]:
        seq = self._seq
        for call_id, call in self._calls.items():
            yield _result(call_id, call, self._turn, seq, self._time)
            seq += 1
        if self._has_step:
            yield _event("step/end", seq, self._time, {"turn": self._turn, "step": self._step})
            seq += 1
        reason = {"kind": "interrupted"}
        yield _event("turn/end", seq, self._time, {"turn": self._turn, "reason": reason})


def _answered(message: object) -> str:
    source = message.get("source") if isinstance(message, dict) else None
    call_id = source.get("callId") if isinstance(source, dict) else None
    return call_id if type(call_id) is str else ""


def _result(call_id: str, call: _Call, turn: Any, seq: int, time: int) -> RepairEvent:
    if call.call_seq is None:
        text, name, code = _NOT_STARTED, "ToolNotStartedError", "TOOL_NOT_STARTED"
    else:
        text, name, code = _UNKNOWN_OUTCOME, "ToolOutcomeUnknownError", "TOOL_OUTCOME_UNKNOWN"
    block = {
        "type": "tool-result",
        "toolCallId": call_id,
        "isError": True,
        "content": [{"type": "text", "text": text}],
    }
    data = {
        "turn": turn,
        "step": call.step,
        "message": {
            "id": f"interrupted-tool-result-{call_id}-{seq}",
            "role": "user",
            "source": {"kind": "tool", "callId": call_id},
            "content": [block],
        },
        "error": {"name": name, "code": code},
    }
    sources = None if call.call_seq is None else (call.call_seq,)
    return RepairEvent("tool/result", seq, time, freeze(data, "closer", stored=True), sources, "append")


def _event(kind: str, seq: int, time: int, data: dict[str, Any]) -> RepairEvent:
    return RepairEvent(kind, seq, time, freeze(data, "closer", stored=True))
