"""Reading the envelope of a stored event (`spec/session-log.md` §3)."""

from typing import Any

from dsh.session.error import InvalidEvent
from dsh.session.event import SessionEvent
from dsh.session.surface import check_keys
from dsh.session.value import FrozenDict, JsonObject, freeze, safe_int

_KEYS = frozenset({"type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable"})


def check_envelope(value: object) -> JsonObject:
    """The event as a mapping, once its envelope is known to be well formed. Surface keys come later.

    Raises:
        InvalidEvent: a key is missing, wrong or unknown.
    """
    if type(value) is not dict and type(value) is not FrozenDict:
        raise InvalidEvent(f"an event is a JSON object, found {type(value).__name__}")
    kind = value.get("type")
    if type(kind) is not str:
        raise InvalidEvent(f"the type of an event is a string, found {kind!r:.60}")
    seq, time = safe_int(value.get("seq")), safe_int(value.get("time"))
    if seq is None or seq < 0:
        raise InvalidEvent(f"{kind}: seq is a safe integer from 0, found {value.get('seq')!r:.60}")
    if time is None:
        raise InvalidEvent(f"{kind}: time is a safe integer, found {value.get('time')!r:.60}")
    if "data" not in value:
        raise InvalidEvent(f"{kind}: data is missing")
    if "ignorable" in value and value["ignorable"] is not True:
        raise InvalidEvent(f"{kind}: ignorable is true or absent, found {value['ignorable']!r:.60}")
    if not _KEYS.issuperset(value):
        raise InvalidEvent(f"{kind}: unknown envelope key {min(value.keys() - _KEYS)!r:.60}")
    return value


def event_from_json(value: object) -> SessionEvent:
    """A stored event on its own: envelope and those rules of the surface that need no other event.

    Raises:
        InvalidEvent: the envelope or a surface key is wrong.
        JsonError: the payload is nested too deeply.
    """
    stored = check_envelope(value)
    kind: str = stored["type"]
    seq: Any = safe_int(stored["seq"])
    time: Any = safe_int(stored["time"])
    plan = check_keys(kind, seq, stored)
    data = freeze(stored["data"], f"{kind}: data", stored=True)
    return SessionEvent(kind, seq, time, data, plan.sources, plan.surface, "ignorable" in stored)
