"""Closes what a crash left open, so that the log can be continued (`spec/session-log.md` §13).

The closers follow from the log alone; computing them twice gives nothing the second time. Brackets of
plugins (compaction, approvals, commands, hooks, workflows) are their owners' to close.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dsh.session.chunk_row import ChunkRun
from dsh.session.event import RepairEvent, SessionEvent
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

StoredEntry = JsonObject | SessionEvent | ChunkRun
"""One entry of a log that may not have been checked yet."""


class _Call:
    """A tool call of the model that has no result: the step it belongs to, and where it was started."""

    __slots__ = ("call_seq", "step")

    def __init__(self, step: Any) -> None:
        self.step = step
        self.call_seq: int | None = None


class _Scan:
    """What is open after the entries seen so far."""

    def __init__(self) -> None:
        self.turn: Any = None
        self.step: Any = None
        self.turn_open = self.step_open = False
        self.calls: dict[str, _Call] = {}

    def see(self, kind: object, seq: int, data: JsonObject) -> None:
        match kind:
            case "turn/start":
                self.turn_open, self.turn = True, data.get("turn")
                self.step_open = False
                self.calls.clear()
            case "turn/end":
                self.turn_open = self.step_open = False
                self.calls.clear()
            case "step/start":
                self.step_open, self.step = True, data.get("step")
            case "step/end":
                self.step_open = False
                self.calls.clear()
            case "assistant/message":
                for call_id in _requested(data.get("message")):
                    if call_id in self.calls:
                        self.calls[call_id].call_seq = None
                        self.calls[call_id].step = data.get("step")
                    else:
                        self.calls[call_id] = _Call(data.get("step"))
            case "tool/call":
                call = self.calls.get(str(data.get("callId")))
                if call is not None:
                    call.call_seq = seq
            case "tool/result":
                self.calls.pop(_answered(data.get("message")), None)


def _requested(message: object) -> Iterator[str]:
    content = message.get("content") if isinstance(message, Mapping) else None
    for block in content if isinstance(content, list | tuple) else ():
        if isinstance(block, Mapping) and block.get("type") == "tool-call" and type(block.get("id")) is str:
            yield block["id"]


def _answered(message: object) -> str:
    source = message.get("source") if isinstance(message, Mapping) else None
    call_id = source.get("callId") if isinstance(source, Mapping) else None
    return call_id if type(call_id) is str else ""


def closers(entries: Sequence[StoredEntry]) -> list[RepairEvent]:
    """The events that close the open turn at the end of a log; none where no turn is open.

    The entries need not have been validated; the closers are then as wrong as the numbers they were made
    from, and the validation of the whole finds both.
    """
    scan = _Scan()
    seq, time = 0, 0
    for entry in entries:
        if isinstance(entry, ChunkRun):
            seq, time = entry.stop, entry.last_time
            continue
        fields = entry.to_json() if isinstance(entry, SessionEvent) else entry
        if isinstance(data := fields.get("data"), Mapping):
            scan.see(fields.get("type"), seq, data)
        seq, time = seq + 1, safe_int(fields.get("time")) or 0
    return list(_close(scan, seq, time)) if scan.turn_open else []


def _close(scan: _Scan, seq: int, time: int) -> Iterator[RepairEvent]:
    for call_id, call in scan.calls.items():
        yield _result(call_id, call, scan.turn, seq, time)
        seq += 1
    if scan.step_open:
        yield _event("step/end", seq, time, {"turn": scan.turn, "step": scan.step})
        seq += 1
    yield _event("turn/end", seq, time, {"turn": scan.turn, "reason": {"kind": "interrupted"}})


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
