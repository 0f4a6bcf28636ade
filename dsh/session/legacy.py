"""Import of what early builds of format 0 wrote: read-side only, the stored bytes stay as they are.

What merely looks current but is damaged is left alone, so that the ordinary checks refuse it
(`spec/session-log.md` §13).
"""

from collections.abc import Callable
from typing import Any

from dsh.session.error import InvalidEvent
from dsh.session.value import JsonObject, is_number, safe_int
from dsh.session.vocabulary import check_stored

_FAILURE_OPTIONAL: dict[str, Callable[[object], bool]] = {
    "status": is_number,
    "providerRetryAfterMs": is_number,
    "requestId": lambda value: type(value) is str,
}
_CHANGED = (
    "turn/start",
    "turn/end",
    "steering/message",
    "user/message",
    "assistant/message",
    "tool/result",
)
"""The types that had another shape once."""


def check_current(kind: str, data: Any) -> None:
    """Refuse a candidate that readers would take for an old shape, and make something else of.

    Raises:
        InvalidEvent: it is one.
    """
    if kind in _CHANGED:
        event = {"type": kind, "seq": 0, "data": data}
        if LegacyReader("").convert(event) is not event:
            raise InvalidEvent(f"{kind}: data has a shape of early builds, which readers convert")


class LegacyReader:
    """Converts the events of one log in order. State: the message ids of results by seq, for replacements."""

    def __init__(self, session_id: str) -> None:
        self._session_id = session_id
        self._message_ids: dict[int, str] = {}

    def convert(self, event: JsonObject) -> JsonObject:
        """The event in its current shape; the very same object where nothing has to change.

        Raises:
            InvalidEvent: an old shape, damaged; or a `turn/end` that no reader accepts.
        """
        kind, data = event.get("type"), event.get("data")
        if kind not in _CHANGED:
            return event
        if isinstance(data, dict):
            event = self._convert(event, data)
            if kind == "tool/result":
                self._remember(event)
        elif kind == "turn/end" or kind == "steering/message":
            raise InvalidEvent(f"{kind}: data is an object")
        return event

    def _convert(self, event: JsonObject, data: dict[str, Any]) -> JsonObject:
        match event.get("type"):
            case "turn/start" if "trigger" in data:
                return {**event, "data": _turn_start(data)}
            case "turn/end":
                current = _turn_end(data)
                check_stored("turn/end", current)
                return event if current is data else {**event, "data": current}
            case "steering/message":
                return {**event, "type": "user/message", "data": self._steering(event, data)}
            case "user/message" if _has(data, "content", "source") and not _has_any(
                data, "id", "role", "message"
            ):
                return {**event, "data": {**data, "id": self._mint(event), "role": "user"}}
            case "assistant/message" if _has(data, "content", "provenance") and "message" not in data:
                return {**event, "data": self._assistant(event, data)}
            case "tool/result" if _has(data, "callId", "content", "isError") and "message" not in data:
                return {**event, "data": self._result(event, data)}
        return event

    def _mint(self, event: JsonObject) -> str:
        return f"legacy-message:{self._session_id}:{safe_int(event.get('seq'))}"

    def _remember(self, event: JsonObject) -> None:
        seq, message = safe_int(event.get("seq")), event["data"].get("message")
        if seq is not None and isinstance(message, dict) and type(message.get("id")) is str:
            self._message_ids[seq] = message["id"]

    def _steering(self, event: JsonObject, data: dict[str, Any]) -> Any:
        if data.keys() == {"turn", "message"}:
            return data["message"]
        if data.keys() == {"turn", "content", "source"}:
            return {
                "content": data["content"],
                "source": data["source"],
                "id": self._mint(event),
                "role": "user",
            }
        raise InvalidEvent("steering/message: data is turn and message, or turn, content and source")

    def _assistant(self, event: JsonObject, data: dict[str, Any]) -> dict[str, Any]:
        provenance = data["provenance"]
        source = {**provenance, "kind": "model"} if isinstance(provenance, dict) else provenance
        message = {
            "id": self._mint(event),
            "role": "assistant",
            "content": data["content"],
            "source": source,
        }
        return {**_without(data, "content", "provenance"), "message": message}

    def _result(self, event: JsonObject, data: dict[str, Any]) -> dict[str, Any]:
        block = {
            "type": "tool-result",
            "toolCallId": data["callId"],
            "content": data["content"],
            "isError": data["isError"],
        }
        message = {
            "id": self._target_id(event) or self._mint(event),
            "role": "user",
            "content": [block],
            "source": {"kind": "tool", "callId": data["callId"]},
        }
        return {**_without(data, "callId", "content", "isError"), "message": message}

    def _target_id(self, event: JsonObject) -> str | None:
        surface = event.get("surfaceOp")
        start = safe_int(surface.get("start")) if isinstance(surface, dict) else None
        return None if start is None else self._message_ids.get(start)


def _turn_start(data: dict[str, Any]) -> dict[str, Any]:
    turn, trigger = safe_int(data.get("turn")), data["trigger"]
    if data.keys() != {"turn", "trigger"} or turn is None or turn < 1:
        raise InvalidEvent("turn/start: data is exactly turn, from 1, and trigger")
    kind = trigger.get("kind") if isinstance(trigger, dict) else None
    if type(kind) is not str or kind == "":
        raise InvalidEvent("turn/start: the trigger has a kind")
    return {"turn": turn}


def _turn_end(data: dict[str, Any]) -> dict[str, Any]:
    reason = data.get("reason")
    if not isinstance(reason, dict):
        return data
    match reason.get("kind"):
        case "aborted" if "reason" not in reason:
            _only(reason, {"kind"})
            return {**data, "reason": {"kind": "aborted", "reason": {"kind": "legacy"}}}
        case "disposed":
            _only(reason, {"kind"})
            return {**data, "reason": {"kind": "aborted", "reason": {"kind": "disposed"}}}
        case "error" if "error" not in reason:
            return {**data, "reason": {"kind": "error", "error": _turn_error(reason)}}
    return data


def _turn_error(reason: dict[str, Any]) -> dict[str, Any]:
    step = safe_int(reason.get("step"))
    if step is None or step < 0:
        raise InvalidEvent("turn/end: an old error reason has a step from 0")
    if "failure" in reason:
        _only(reason, {"kind", "step", "failure"})
        return _failure(reason["failure"])
    _only(reason, {"kind", "step", "message", "code"})
    message, code = reason.get("message"), reason.get("code", "UNKNOWN")
    if type(message) is not str or type(code) is not str:
        raise InvalidEvent("turn/end: an old error reason has a message and perhaps a code")
    return {"message": message, "code": code}


def _failure(failure: Any) -> dict[str, Any]:
    if not isinstance(failure, dict):
        raise InvalidEvent("turn/end: the failure is an object")
    _only(failure, {"message", "code", *_FAILURE_OPTIONAL})
    good = type(failure.get("message")) is str and type(failure.get("code")) is str
    if not good or not all(test(failure[key]) for key, test in _FAILURE_OPTIONAL.items() if key in failure):
        raise InvalidEvent("turn/end: the failure has message and code, and numbers where they belong")
    return failure


def _only(reason: dict[str, Any], allowed: set[str]) -> None:
    if extra := reason.keys() - allowed:
        raise InvalidEvent(f"turn/end: unknown key {min(extra)!r:.60} in an old reason")


def _has(data: dict[str, Any], *keys: str) -> bool:
    return all(key in data for key in keys)


def _has_any(data: dict[str, Any], *keys: str) -> bool:
    return any(key in data for key in keys)


def _without(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in keys}
