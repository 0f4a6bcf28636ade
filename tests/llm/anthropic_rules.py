"""What the Messages API says of requests, checked without a line of the code that makes them.

Written from Anthropic's pages on messages, tool use, thinking and prompt caching.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

THINKING = {"thinking", "redacted_thinking"}
LOOK_BACK_BLOCKS = 20
"""How far before a marker the provider looks for what it has in its cache."""


def problems(body: Mapping[str, Any]) -> list[str]:
    """All that the API would refuse a request for."""
    found = list(_of_messages(body["messages"]))
    if len(marked(body)) > 4:
        found.append("more than four cache markers")
    thinking = body.get("thinking", {})
    if thinking.get("type") == "enabled":
        if not 1024 <= thinking["budget_tokens"] < body["max_tokens"]:
            found.append("budget out of range")
        if not _loop_begins_with_thinking(body["messages"]):
            found.append("a tool loop without thinking goes on with a budget")
    if thinking.get("type") in ("enabled", "adaptive") and "temperature" in body:
        found.append("temperature with thinking")
    return found


def _of_messages(messages: Sequence[Any]) -> Iterator[str]:
    open_calls: list[str] = []
    used: set[str] = set()
    for at, message in enumerate(messages):
        blocks = message["content"]
        kinds = [block["type"] for block in blocks]
        if message["role"] != ("assistant" if at % 2 else "user"):
            yield f"{at}: roles do not alternate"
        if not blocks:
            yield f"{at}: no content"
        for block in blocks:
            yield from (f"{at}: {words}" for words in _of_block(block))
        if message["role"] == "user":
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            if sorted(results) != sorted(open_calls):
                yield f"{at}: calls {open_calls} are answered by {results}"
            if kinds[: len(results)] != ["tool_result"] * len(results):
                yield f"{at}: results are not first"
            open_calls = []
        else:
            open_calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if len(set(open_calls)) < len(open_calls) or used & set(open_calls):
                yield f"{at}: an id is used twice"
            used |= set(open_calls)
            if kinds and kinds[-1] in THINKING:
                yield f"{at}: the final block is thinking"
    if not messages or messages[-1]["role"] != "user":
        yield "the last message is not the user's"


def _of_block(block: Mapping[str, Any]) -> Iterator[str]:
    kind = block["type"]
    if kind == "text" and not block["text"].strip():
        yield "blank text"
    elif kind == "tool_result" and not block["content"].strip():
        yield "blank result"
    elif kind == "tool_use":
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", block["id"]):
            yield f"id {block['id']!r}"
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", block["name"]):
            yield f"name {block['name']!r}"
        if not isinstance(block["input"], dict):
            yield "input is no object"
    elif kind in THINKING and "cache_control" in block:
        yield "thinking is marked for the cache"


def _loop_begins_with_thinking(messages: Sequence[Any]) -> bool:
    """Whether the tool loop that is going on begins with thinking; so does none at all."""
    first = None
    for at in range(len(messages) - 1, 0, -2):
        if not any(block["type"] == "tool_result" for block in messages[at]["content"]):
            break
        first = messages[at - 1]["content"][0]["type"]
    return first is None or first in THINKING


def blocks_of(body: Mapping[str, Any]) -> list[Any]:
    """Everything that is cached, block for block, in the provider's order: tools, system, messages."""
    system = body.get("system", [])
    messages = [
        {"role": message["role"], **block} for message in body["messages"] for block in message["content"]
    ]
    return [*body.get("tools", []), *system, *messages]


def marked(body: Mapping[str, Any]) -> list[int]:
    """Where the cache markers are, among these blocks."""
    return [at for at, block in enumerate(blocks_of(body)) if "cache_control" in block]


def texts(body: Mapping[str, Any]) -> list[str]:
    """These blocks without their markers, as text."""
    return [
        json.dumps({key: value for key, value in block.items() if key != "cache_control"})
        for block in blocks_of(body)
    ]


def cached_blocks(before: Sequence[Mapping[str, Any]], now: Mapping[str, Any]) -> int:
    """How many blocks of a request the provider reads from its cache, after these requests."""
    kept = {tuple(texts(body)[: at + 1]) for body in before for at in marked(body)}
    words, longest = texts(now), 0
    for marker in marked(now):
        for at in range(marker, max(-1, marker - LOOK_BACK_BLOCKS), -1):
            if tuple(words[: at + 1]) in kept:
                longest = max(longest, at + 1)
                break
    return longest
