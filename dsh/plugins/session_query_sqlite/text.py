"""What of an event can be searched for, and how a literal text is compared."""

import re
from collections.abc import Iterator
from typing import Any

from dsh.session.event import SessionEvent
from dsh.unicode import valid

TYPES = ("user/message", "assistant/message", "tool/call", "tool/result", "todo/write", "turn/end")
"""The event types that hold searchable text; of all others it is empty."""

_SPACE = re.compile(r"\s+")
MATCH_START, MATCH_END = "\x02", "\x03"
"""Stand around each match in a text that was found; no indexed text holds them."""
WORD_BREAK = "\x01"
"""Parts words where the writing does not; no other one is in an indexed text."""
_RESERVED = str.maketrans(dict.fromkeys((MATCH_START, MATCH_END, WORD_BREAK, "\0"), " "))
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
    "\uac00-\ud7a3"  # Hangul, whose particles are written onto the words
)
_BREAKS = re.compile(f"(?=[{_UNSPACED}])|(?<=[{_UNSPACED}])(?=\\w)")


def folded(text: str) -> str:
    """The text as it is compared: case does not matter, and any white space is like any other."""
    return _SPACE.sub(" ", text).casefold()


def indexed(text: str) -> str:
    """The text as the full text index takes it, whose words end at what is no letter.

    Each character of a script that is written without spaces is a word of its own, so that a phrase is found
    wherever it stands in a run of them.
    """
    text = valid(text).translate(_RESERVED)
    return text if text.isascii() else _BREAKS.sub(WORD_BREAK, text)


def unindexed(text: str) -> str:
    """The text as it was before `indexed` parted its words."""
    return text.replace(WORD_BREAK, "")


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
