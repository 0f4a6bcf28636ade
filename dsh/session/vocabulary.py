"""The event types this program knows, and the shapes of the payloads whose damage would spread.

The same functions check what is appended and what is read (`spec/session-log.md` §3, §5, §9, §12).
"""

from collections.abc import Callable, Iterable
from typing import Any

from dsh.session.error import InvalidEvent
from dsh.session.value import JsonObject, safe_int

KNOWN = frozenset(
    {
        "turn/start",
        "turn/end",
        "step/start",
        "step/end",
        "user/message",
        "assistant/chunk",
        "assistant/message",
        "tool/call",
        "tool/result",
        "request/header",
        "request/context",
        "session/end-seed",
        "agent/inbox/spliced",
        "todo/write",
        "approval/asked",
        "approval/decided",
        "approval/policy",
        "permission/preset",
        "sandbox/mode",
        "command/run",
        "command/done",
        "compaction/start",
        "compaction/summary",
        "compaction/end",
        "compaction/prune",
        "feedback/record",
        "goal/change",
        "llm/retry",
        "llm/retry-started",
        "plan/mode",
        "session/title",
        "session/title-llm-request",
        "subagent/descriptor",
        "tool-workflow/run-start",
        "tool-workflow/agent-start",
        "tool-workflow/agent-end",
        "tool-workflow/run-end",
        "web/deepseek-search-llm-request",
        "tool/code-dispatch-start",
        "tool/code-dispatch",
        "agent-preset/selected",
        "hook/invoked",
        "hook/result",
        "schedule/change",
        "team/member",
        "team/task",
        "team/message/queued",
        "team/message/delivered",
    }
)
"""The closed set of format 0. It does not depend on which rows are mounted."""

_PLAIN_REASONS = frozenset({"completed", "blocked", "max-tokens", "interrupted"})
"""Turn end reasons that are a `kind` alone; `aborted` has a `reason` and `error` an `error`."""

_registered: dict[str, int] = {}


def register_types(types: Iterable[str]) -> Callable[[], None]:
    """Make event types of a plugin known; returns what takes them back.

    A log that holds them opens only where they are registered. A record that a reader may do without
    is better written as ignorable.
    """
    names = tuple(types)
    for name in names:
        _registered[name] = _registered.get(name, 0) + 1

    def undo() -> None:
        nonlocal names
        for name in names:
            _registered[name] -= 1
            if not _registered[name]:
                del _registered[name]
        names = ()

    return undo


def is_known(kind: str) -> bool:
    """True when this program knows what an event of that type means."""
    return kind in KNOWN or kind in _registered


def check_retired(kind: str, data: Any) -> None:
    """Refuse what early builds wrote and nobody can interpret any more.

    Raises:
        InvalidEvent: a retired event type, or a request header with reason `fallback`.
    """
    if kind == "request/header-delta" or kind == "mode/set":
        raise InvalidEvent(f"{kind} is a retired event type that cannot be interpreted")
    if kind == "request/header" and isinstance(data, dict) and data.get("reason") == "fallback":
        raise InvalidEvent('request/header with reason "fallback" is retired and cannot be interpreted')


def check_payload(kind: str, data: Any) -> None:
    """Check the payloads that later readers rely on: messages, request header, end of a turn.

    Raises:
        InvalidEvent: the payload has not the shape of its type.
    """
    check = _CHECKS.get(kind)
    if check is not None:
        check(data)


def check_message_payload(kind: str, data: Any) -> None:
    """The part of `check_payload` that is about the three message types."""
    if kind in _MESSAGE_CHECKS:
        _MESSAGE_CHECKS[kind](data)


def _user_message(data: Any) -> None:
    _message("user/message", data, "user")


def _assistant_message(data: Any) -> None:
    source = _message("assistant/message", _wrapped("assistant/message", data), "assistant")
    if source["kind"] != "model" or not _is_name(source.get("provider")) or not _is_name(source.get("model")):
        raise InvalidEvent('assistant/message: the source has kind "model", a provider and a model')


def _tool_result(data: Any) -> None:
    message = _wrapped("tool/result", data)
    source = _message("tool/result", message, "user")
    if source["kind"] != "tool" or not _is_name(source.get("callId")):
        raise InvalidEvent('tool/result: the source has kind "tool" and a callId')
    content = message["content"]
    block = content[0] if len(content) == 1 else None
    if not isinstance(block, dict) or block.get("type") != "tool-result":
        raise InvalidEvent("tool/result: the message holds exactly one tool-result block")
    if not isinstance(block.get("content"), list | tuple):
        raise InvalidEvent("tool/result: the content of the tool-result block is a list")
    if block.get("toolCallId") != source["callId"]:
        raise InvalidEvent(
            f"tool/result: the block answers {block.get('toolCallId')!r:.80}, "
            f"the source says {source['callId']!r:.80}"
        )


def _wrapped(kind: str, data: Any) -> Any:
    if not isinstance(data, dict):
        raise InvalidEvent(f"{kind}: data is an object, found {type(data).__name__}")
    return data.get("message")


def _message(kind: str, message: Any, role: str) -> JsonObject:
    """Check what all messages share and answer the source."""
    if not isinstance(message, dict):
        raise InvalidEvent(f"{kind}: the message is an object, found {type(message).__name__}")
    if not _is_name(message.get("id")):
        raise InvalidEvent(f"{kind}: the message has a non-empty id, found {message.get('id')!r:.60}")
    if message.get("role") != role:
        raise InvalidEvent(f"{kind}: the role is {role!r}, found {message.get('role')!r:.60}")
    source = message.get("source")
    if not isinstance(source, dict) or not _is_name(source.get("kind")):
        raise InvalidEvent(f"{kind}: the message has a source with a kind")
    if not isinstance(message.get("content"), list | tuple):
        raise InvalidEvent(f"{kind}: the content is a list, found {type(message.get('content')).__name__}")
    return source


def _request_header(data: Any) -> None:
    header = data.get("header") if isinstance(data, dict) else None
    config = header.get("config") if isinstance(header, dict) else None
    if not isinstance(header, dict) or not isinstance(config, dict):
        raise InvalidEvent("request/header: data holds a header with a config")
    for key in ("provider", "model"):
        if not _is_name(config.get(key)):
            raise InvalidEvent(f"request/header: config.{key} is a non-empty string")
    if "reasoningEffort" in config and not _is_name(config["reasoningEffort"]):
        raise InvalidEvent("request/header: config.reasoningEffort is a non-empty string")
    if "adapterDefaults" not in header:
        return
    defaults = header["adapterDefaults"]
    if not isinstance(defaults, dict) or defaults.keys() - {"reasoningEffort", "maxTokens"}:
        raise InvalidEvent("request/header: adapterDefaults marks reasoningEffort and maxTokens only")
    for key, mark in defaults.items():
        if mark is not True or key not in config:
            raise InvalidEvent(f"request/header: adapterDefaults.{key} is true and the config has that field")


def _turn_end(data: Any) -> None:
    if not isinstance(data, dict) or data.keys() != {"turn", "reason"}:
        raise InvalidEvent("turn/end: data is exactly turn and reason")
    turn, reason = safe_int(data["turn"]), data["reason"]
    if turn is None or turn < 1:
        raise InvalidEvent(f"turn/end: turn counts from 1, found {data['turn']!r:.60}")
    if not isinstance(reason, dict) or type(reason.get("kind")) is not str:
        raise InvalidEvent("turn/end: the reason is an object with a kind")
    if reason["kind"] in _PLAIN_REASONS and len(reason) > 1:
        raise InvalidEvent(f"turn/end: reason {reason['kind']} has no other keys")


def _is_name(value: object) -> bool:
    return type(value) is str and value != ""


_MESSAGE_CHECKS: dict[str, Callable[[Any], None]] = {
    "user/message": _user_message,
    "assistant/message": _assistant_message,
    "tool/result": _tool_result,
}
_CHECKS: dict[str, Callable[[Any], None]] = {
    **_MESSAGE_CHECKS,
    "request/header": _request_header,
    "turn/end": _turn_end,
}
