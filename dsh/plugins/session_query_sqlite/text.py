"""What of an event can be searched for, and how a literal text is compared."""

import re
from collections.abc import Iterator
from typing import Any

from dsh.session.event import SessionEvent

TYPES = ("user/message", "assistant/message", "tool/call", "tool/result", "todo/write", "turn/end")
"""The event types that hold searchable text; of all others it is empty."""

_SPACE = re.compile(r"\s+")


def folded(text: str) -> str:
    """The text as it is compared: case does not matter, and any white space is like any other."""
    return _SPACE.sub(" ", text).casefold()


def searchable(event: SessionEvent) -> str:
    """What was said and done, without the model's reasoning. Data that fits no shape is empty."""
    try:
        return "\n".join(part for part in _PARTS[event.type](event.data) if part)
    except (KeyError, TypeError, AttributeError, IndexError):
        return ""


def _texts(blocks: Any) -> Iterator[str]:
    for block in blocks:
        if block.get("type") == "text":
            yield block["text"]


def _user(data: Any) -> Iterator[str]:
    return _texts(data["content"])


def _assistant(data: Any) -> Iterator[str]:
    return _texts(data["message"]["content"])


def _call(data: Any) -> Iterator[str]:
    yield data["name"]
    yield data["arguments"]


def _result(data: Any) -> Iterator[str]:
    yield from _texts(data["message"]["content"][0]["content"])
    error = data.get("error") or {}
    yield error.get("name", "")
    yield error.get("code", "")


def _todos(data: Any) -> Iterator[str]:
    for todo in data["todos"]:
        yield todo["content"]


def _end(data: Any) -> Iterator[str]:
    reason = data["reason"]
    if reason["kind"] == "error":
        yield reason["error"]["message"]
    elif reason["kind"] in ("aborted", "max-tokens", "interrupted"):
        yield reason["kind"]


_PARTS = dict(zip(TYPES, (_user, _assistant, _call, _result, _todos, _end), strict=True))
