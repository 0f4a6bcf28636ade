"""Calls and results: every call of the model has one result, in its step, in the order of the calls.

A provider may give one id twice, so calls are paired within the step they were made in.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from dsh.session.event import SessionEvent
from dsh.session.value import safe_int
from dsh.session.verify.finding import Findings, quoted


class _Call:
    """One call of the model: the event that made it, the one that started it, the one that answered it."""

    __slots__ = ("arguments", "before", "call_id", "name", "result", "seq", "started")

    def __init__(self, seq: int, before: "_Call | None", block: Mapping[str, Any]) -> None:
        self.seq = seq
        self.before = before
        """The call that the same message makes before this one."""
        self.call_id: str = block["id"]
        self.name = block.get("name")
        self.arguments = block.get("arguments")
        self.started: int | None = None
        self.result: int | None = None


class Calls:
    """Follows the calls of the turn that is open."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._calls: list[_Call] = []
        """Of the open turn, in the order they were made."""
        self._by_id: dict[_Key, list[_Call]] = {}
        self.checked = 0
        """Calls that were followed."""

    def see(self, event: SessionEvent) -> None:
        """Take the next event; packed deltas say nothing here."""
        match event.type:
            case "turn/start":
                self._close(None)
            case "turn/end":
                self._close(event)
            case "assistant/message":
                self._made(event)
            case "tool/call":
                self._started(event)
            case "tool/result" if event.surface == "append":
                self._answered(event)

    def finish(self) -> None:
        """The log ends; what is open is repair's to close, and it has been."""
        self._close(None)

    def _made(self, event: SessionEvent) -> None:
        if event.surface != "append":
            return
        before: _Call | None = None
        for block in event.data["message"]["content"]:
            if (
                isinstance(block, Mapping)
                and block.get("type") == "tool-call"
                and type(block.get("id")) is str
            ):
                before = _Call(event.seq, before, block)
                self._calls.append(before)
                self._by_id.setdefault(_key(event.data, before.call_id), []).append(before)
                self.checked += 1

    def _started(self, event: SessionEvent) -> None:
        data = event.data if isinstance(event.data, Mapping) else {}
        call_id = data.get("callId")
        made = self._by_id.get(_key(data, call_id), [])
        call = next((call for call in made if call.started is None), None)
        if call is None:
            said = "was started before" if made else "no assistant/message of its step asks for it"
            self._findings.error("CALL_NOT_ASKED", event.seq, f"tool/call {quoted(call_id)}: {said}")
            return
        call.started = event.seq
        for key, asked in (("name", call.name), ("arguments", call.arguments)):
            if data.get(key) != asked:
                self._findings.error(
                    "CALL_DIFFERS",
                    event.seq,
                    f"tool/call {quoted(call_id)}: {key} is {quoted(data.get(key))}, event {call.seq} "
                    f"asks for {quoted(asked)}",
                )

    def _answered(self, event: SessionEvent) -> None:
        call_id = event.data["message"]["source"]["callId"]
        made = self._by_id.get(_key(event.data, call_id), [])
        call = next((call for call in made if call.result is None), None)
        if call is None:
            if made:
                said = f"tool/result {quoted(call_id)}: event {made[-1].result} answers the call already"
                self._findings.error("RESULT_TWICE", event.seq, said)
            else:
                said = f"tool/result {quoted(call_id)}: no assistant/message of its step makes this call"
                self._findings.error("RESULT_WITHOUT_CALL", event.seq, said)
            return
        call.result = event.seq
        if "error" in event.data and event.data["message"]["content"][0].get("isError") is not True:
            said = f"tool/result {quoted(call_id)} names an error, and its message says that it went well"
            self._findings.error("RESULT_DIFFERS", event.seq, said)
        self._check_order(call)
        self._check_sources(event, call)

    def _check_order(self, call: _Call) -> None:
        other = call.before
        if other is not None and other.result is None:
            said = (
                f"tool/result {quoted(call.call_id)} stands before that of {quoted(other.call_id)}, "
                "which was asked for earlier"
            )
            self._findings.error("RESULT_OUT_OF_PLACE", call.result, said)

    def _check_sources(self, event: SessionEvent, call: _Call) -> None:
        cited = event.sources
        if call.started is None:
            error = event.data.get("error")
            if not isinstance(error, Mapping) or error.get("code") != "TOOL_NOT_STARTED":
                said = f"tool/result {quoted(call.call_id)}: no tool/call says that it was started"
                self._findings.error("CALL_NOT_STARTED", event.seq, said)
        elif cited is None:
            said = f"tool/result {quoted(call.call_id)} cites nothing, its tool/call is event {call.started}"
            self._findings.warning("RESULT_UNCITED", event.seq, said)
        elif call.started not in cited:
            said = (
                f"tool/result {quoted(call.call_id)} cites {quoted(cited)}, its tool/call is {call.started}"
            )
            self._findings.error("RESULT_CITES_OTHER", event.seq, said)

    def _close(self, end: SessionEvent | None) -> None:
        """The turn is over. A turn that failed or was cut off may leave calls behind, a good one not."""
        reason = end.data["reason"]["kind"] if end is not None else None
        for call in self._calls:
            if call.result is not None:
                continue
            said = f"the call {quoted(call.call_id)} of {quoted(call.name)} has no result"
            went_on = self._calls[-1].seq > call.seq
            if reason in ("completed", "blocked", "max-tokens") or went_on:
                self._findings.error("CALL_UNANSWERED", call.seq, said)
            else:
                self._findings.warning("CALL_UNANSWERED", call.seq, f"{said}; its turn was cut off")
        self._calls.clear()
        self._by_id.clear()


_Key: TypeAlias = tuple[int | None, int | None, object]
"""Turn, step and id of a call."""


def _key(data: Mapping[str, Any], call_id: object) -> _Key:
    named = call_id if isinstance(call_id, str) else None
    return safe_int(data.get("turn")), safe_int(data.get("step")), named
