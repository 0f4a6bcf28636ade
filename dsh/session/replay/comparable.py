"""What two events have to share to be the same event of two runs: the rest is identity, time and chance.

Ids that a program makes up are left out, and places in the log are given as those of the recorded one. What
stands in a request beside its messages (system prompt, tools) is not compared: a replay is given it. Of a
snapshot of the runtime context its sections count, and not the words around them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from dsh.session.event import SessionEvent

Place = Callable[[int], int]
"""From a seq to the seq of the recorded log that it stands for."""
Mask = Callable[[str], str]

_MADE_UP: Mapping[str, frozenset[str]] = {
    "llm/retry": frozenset({"retryId", "policyKey", "delayMs", "maxRetries"}),
    "llm/retry-started": frozenset({"retryId"}),
    "compaction/start": frozenset({"compactionId", "sourceCommandId"}),
    "compaction/summary": frozenset({"compactionId", "sourceCommandId", "shadowedTokenCount", "maxTokens"}),
    "compaction/end": frozenset({"compactionId", "sourceCommandId"}),
    "compaction/prune": frozenset({"shadowedTokenCount"}),
    "command/run": frozenset({"commandId"}),
    "command/done": frozenset({"commandId", "text"}),
    "approval/asked": frozenset({"id"}),
    "approval/decided": frozenset({"id"}),
    "tool/result": frozenset({"meta"}),
}
"""By event type: the keys of a payload that differ from run to run, or only describe."""
_IN_SOURCES = frozenset({"compactionId", "sourceCommandId", "sections"})
_PLACES = frozenset({"sourceEventSeq", "start", "end", "shadowedSeqs", "messageSeqs"})


class Difference(NamedTuple):
    """The first place where two values are not the same."""

    path: str
    """Such as `data.message.content[0].text`."""
    recorded: Any
    replayed: Any


class Absent:
    """Stands where one side has nothing."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = Absent()


def comparable(event: SessionEvent, place: Place, mask: Mask) -> dict[str, Any]:
    """The part of an event that two runs share."""
    data = _payload(event, place, mask)
    out: dict[str, Any] = {"type": event.type, "data": data}
    if event.sources is not None:
        out["sourceEventSeqs"] = [place(seq) for seq in event.sources]
    if event.surface is not None:
        out["surfaceOp"] = _value(event.surface, place, mask, is_placed=True)
    return out


def _payload(event: SessionEvent, place: Place, mask: Mask) -> Any:
    data: Any = event.data
    if not isinstance(data, Mapping):
        return data
    if event.type == "request/header":
        header = data["header"]
        kept = {key: header[key] for key in ("config", "adapterDefaults") if key in header}
        return {"reason": data["reason"], "header": _value(kept, place, mask)}
    if event.type == "user/message":
        return _message(data, place, mask)
    left_out = _MADE_UP.get(event.type, frozenset())
    is_placed = event.type.startswith(("compaction/", "command/"))
    out = {}
    for key, value in data.items():
        if key in left_out:
            continue
        if key == "message":
            out[key] = _message(value, place, mask)
        elif key == "inserted":
            out[key] = [_message(message, place, mask) for message in value]
        else:
            out[key] = _value(value, place, mask, is_placed=is_placed and key in {*_PLACES, "shadowedRange"})
    return out


def _message(message: Mapping[str, Any], place: Place, mask: Mask) -> Any:
    kept = {key: value for key, value in message.items() if key != "id"}
    source = message.get("source")
    if isinstance(source, Mapping) and source.get("form") == "snapshot" and "sections" in source:
        return {"role": message.get("role"), "source": _value(source, place, mask)}
    if isinstance(source, Mapping):
        kept["source"] = {key: value for key, value in source.items() if key not in _IN_SOURCES}
    return _value(kept, place, mask)


def _value(value: Any, place: Place, mask: Mask, *, is_placed: bool = False) -> Any:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, Mapping):
        return {key: _value(one, place, mask, is_placed=is_placed) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_value(one, place, mask, is_placed=is_placed) for one in value]
    if is_placed and type(value) is int:
        return place(value)
    return value


def first_difference(recorded: Any, replayed: Any, path: str = "") -> Difference | None:
    """Where two comparable values part; None where they do not."""
    if isinstance(recorded, Mapping) and isinstance(replayed, Mapping):
        for key in dict.fromkeys((*recorded, *replayed)):
            where = f"{path}.{key}" if path else str(key)
            found = first_difference(recorded.get(key, ABSENT), replayed.get(key, ABSENT), where)
            if found is not None:
                return found
        return None
    if isinstance(recorded, list) and isinstance(replayed, list):
        for at in range(max(len(recorded), len(replayed))):
            one = recorded[at] if at < len(recorded) else ABSENT
            other = replayed[at] if at < len(replayed) else ABSENT
            found = first_difference(one, other, f"{path}[{at}]")
            if found is not None:
                return found
        return None
    same = type(recorded) is type(replayed) or not {type(recorded), type(replayed)} - {int, float}
    return None if same and recorded == replayed else Difference(path, recorded, replayed)
