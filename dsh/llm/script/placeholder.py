"""Placeholders of a script, `{{fromRequest:<regex>}}`, filled from the request that is answered.

A recording names what only the live run knows, such as the path of a spilled file. What is searched are all
string leaves of the request's messages, one a line; the last match counts, its group 1 where there is one
(`spec/llm.md` §8).
"""

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from dsh.llm.script.entry import ScriptEntry, Throw
from dsh.llm.script.error import PLACEHOLDER, ScriptError
from dsh.session.chunk import BlockEnd, Chunk, Finish, ReasoningDelta, TextDelta, ToolCallDelta
from dsh.session.message import Message

OPEN, CLOSE = "{{fromRequest:", "}}"
_JS_GROUP = re.compile(r"\(\?<(?=[A-Za-z_])")
"""A named group as JavaScript writes it, for recordings of the original."""

Fill = Callable[[str], str]


def request_text(messages: Sequence[Message]) -> str:
    """Every string in the messages, in written order, joined by line feeds."""
    return "\n".join(_leaves(messages))


def readable_text(messages: Sequence[Message]) -> str:
    """What is said in the messages: texts, reasoning, results, names and arguments of calls, one a line."""
    return "\n".join(line for message in messages for line in _said(message["content"]))


def _said(blocks: Sequence[Any]) -> Iterator[str]:
    for block in blocks:
        if block["type"] in ("text", "reasoning"):
            yield block["text"]
        elif block["type"] == "tool-call":
            yield f"{block['name']} {block['arguments']}"
        elif block["type"] == "tool-result":
            yield from _said(block["content"])


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)


def filled(text: str, searched: str) -> str:
    """The text with each placeholder replaced.

    Args:
        searched: from `request_text`.

    Raises:
        ScriptError: `SCRIPT_PLACEHOLDER`, one has no end, no valid pattern, or no match.
    """
    if OPEN not in text:
        return text
    out, at = [], 0
    while (start := text.find(OPEN, at)) >= 0:
        out.append(text[at:start])
        pattern, at = _pattern(text, start)
        out.append(_match(pattern, searched))
    return "".join((*out, text[at:]))


def check_placeholders(text: str) -> None:
    """Check what can be known before a request is there.

    Raises:
        ScriptError: as `filled`, but for the match.
    """
    at = 0
    while (start := text.find(OPEN, at)) >= 0:
        pattern, at = _pattern(text, start)
        _compiled(pattern)


def _pattern(text: str, start: int) -> tuple[str, int]:
    """The pattern of the placeholder at `start`, and where the text goes on behind it."""
    begin = start + len(OPEN)
    end = text.find(CLOSE, begin)
    if end < 0:
        raise ScriptError(PLACEHOLDER, f"the placeholder {text[start : start + 80]!r} has no end", hint="}}")
    while text[end + len(CLOSE) : end + len(CLOSE) + 1] == "}":
        end += 1  # of a run of braces the last two close: a pattern may end in a quantifier
    return text[begin:end], end + len(CLOSE)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(_JS_GROUP.sub("(?P<", pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise ScriptError(
            PLACEHOLDER, f"the pattern {pattern!r:.200} of a placeholder is no regular expression: {error}"
        ) from None


def _match(pattern: str, searched: str) -> str:
    matches = deque(_compiled(pattern).finditer(searched), maxlen=1)
    if not matches:
        raise ScriptError(
            PLACEHOLDER,
            f"nothing in the request matches the placeholder's pattern {pattern!r:.200}",
            hint="record the session again, or change the pattern",
        )
    last = matches[0]
    found = last[1] if last.re.groups else None
    return str(last[0] if found is None else found)


def filled_entry(entry: ScriptEntry, messages: Sequence[Message]) -> ScriptEntry:
    """The entry with every string in it filled; the very same where none has to be. Raises as `filled`."""
    told = entry.failure.message if isinstance(entry, Throw) else ""
    if OPEN not in told and not any(OPEN in text for chunk in entry.chunks for text in _texts(chunk)):
        return entry
    searched = request_text(messages)

    def fill(text: str) -> str:
        return filled(text, searched)

    entry = msgspec.structs.replace(entry, chunks=tuple(_filled(chunk, fill) for chunk in entry.chunks))
    if isinstance(entry, Throw):
        entry = msgspec.structs.replace(
            entry, failure=msgspec.structs.replace(entry.failure, message=fill(told))
        )
    return entry


def _texts(chunk: Chunk) -> Iterator[str]:
    if isinstance(chunk, TextDelta | ReasoningDelta):
        yield chunk.text
    elif isinstance(chunk, ToolCallDelta):
        yield from (chunk.id, chunk.arguments_delta)
        if isinstance(chunk.name, str):
            yield chunk.name
    elif isinstance(chunk, BlockEnd):
        yield from _leaves(chunk.block)
    elif isinstance(chunk, Finish):
        yield from _leaves(chunk.reason)


def _filled(chunk: Chunk, fill: Fill) -> Chunk:
    change = msgspec.structs.replace
    if isinstance(chunk, TextDelta | ReasoningDelta):
        return change(chunk, text=fill(chunk.text))
    if isinstance(chunk, ToolCallDelta):
        name = fill(chunk.name) if isinstance(chunk.name, str) else chunk.name
        return change(chunk, id=fill(chunk.id), name=name, arguments_delta=fill(chunk.arguments_delta))
    if isinstance(chunk, BlockEnd):
        return change(chunk, block=_filled_value(chunk.block, fill))
    if isinstance(chunk, Finish):
        return change(chunk, reason=_filled_value(chunk.reason, fill))
    return chunk


def _filled_value(value: Any, fill: Fill) -> Any:
    if isinstance(value, str):
        return fill(value)
    if isinstance(value, dict):
        return {key: _filled_value(item, fill) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_filled_value(item, fill) for item in value]
    return value


def filled_value(value: Any, searched: str) -> Any:
    """JSON data with the placeholders in all its strings filled. Raises as `filled`."""
    return _filled_value(value, lambda text: filled(text, searched))
