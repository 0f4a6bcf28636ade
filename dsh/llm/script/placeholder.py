"""Placeholders of a script, `{{fromRequest:<regex>}}`, filled from the request that is answered.

A recording names what only the live run knows, such as the path of a spilled file. What is searched are all
string leaves of the request's messages, one a line; the last match counts, its group 1 where there is one
(`spec/llm.md` §8).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from dsh.llm.script.entry import ScriptEntry, Throw
from dsh.llm.script.error import PLACEHOLDER, ScriptError
from dsh.llm.script.pattern import PatternError, compiled, last_match
from dsh.session.chunk import chunk_from_json, chunk_to_json
from dsh.session.message import Message

OPEN, CLOSE = "{{fromRequest:", "}}"


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


def holds_placeholder(value: Any) -> bool:
    """Whether a string in JSON data is to be filled."""
    return any(OPEN in text for text in _leaves(value))


def check_placeholders(value: Any) -> None:
    """Check what can be known of the strings in JSON data before a request is there.

    Raises:
        ScriptError: as `filled`, but for the match.
    """
    for text in _leaves(value):
        at = 0
        while (start := text.find(OPEN, at)) >= 0:
            pattern, at = _pattern(text, start)
            try:
                compiled(pattern)
            except PatternError as error:
                raise ScriptError(PLACEHOLDER, f"placeholder: {error}") from None


def _pattern(text: str, start: int) -> tuple[str, int]:
    """The pattern of the placeholder at `start`, and where the text goes on behind it."""
    begin = start + len(OPEN)
    end = text.find(CLOSE, begin)
    if end < 0:
        raise ScriptError(PLACEHOLDER, f"the placeholder {text[start : start + 80]!r} has no end", hint="}}")
    while text[end + len(CLOSE) : end + len(CLOSE) + 1] == "}":
        end += 1  # of a run of braces the last two close: a pattern may end in a quantifier
    return text[begin:end], end + len(CLOSE)


def _match(pattern: str, searched: str) -> str:
    try:
        found = last_match(pattern, searched)
    except PatternError as error:
        raise ScriptError(PLACEHOLDER, f"placeholder: {error}") from None
    if found is None:
        raise ScriptError(
            PLACEHOLDER,
            f"nothing in the request matches the placeholder's pattern {pattern!r:.200}",
            hint="record the session again, or change the pattern",
        )
    return found


def filled_value(value: Any, searched: str) -> Any:
    """JSON data with the placeholders in all its strings filled, but not in keys. Raises as `filled`."""
    if isinstance(value, str):
        return filled(value, searched)
    if isinstance(value, dict):
        return {key: filled_value(item, searched) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [filled_value(item, searched) for item in value]
    return value


def filled_entry(entry: ScriptEntry, messages: Sequence[Message]) -> ScriptEntry:
    """The entry with every string in it filled; the very same where none has to be. Raises as `filled`."""
    told = entry.failure.message if isinstance(entry, Throw) else ""
    chunks = [chunk_to_json(chunk) for chunk in entry.chunks]
    if not holds_placeholder([told, chunks]):
        return entry
    searched = request_text(messages)
    made = tuple(chunk_from_json(filled_value(chunk, searched)) for chunk in chunks)
    entry = msgspec.structs.replace(entry, chunks=made)
    if isinstance(entry, Throw):
        failure = msgspec.structs.replace(entry.failure, message=filled(told, searched))
        entry = msgspec.structs.replace(entry, failure=failure)
    return entry
