"""How much text messages put before a model, in two measures that need no tokenizer.

The *log price* counts UTF-16 units, four to a token: what `shadowedTokenCount` has to say, so that every
reader of a log comes to the same number (`spec/tools.md` §8). The *weight* counts UTF-8 bytes; an estimate in
tokens is a weight over a number of bytes that is learned from what a provider reports. A Chinese character is
one unit and three bytes, and that is why only weights decide.

Both are defined for whatever a log that opens may hold: a block of an unknown kind counts as its JSON.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from dsh.session.message import Message
from dsh.session.value import JsonValue, encode

FRAME = 4
"""Tokens that a block, a message, a system text and a list of tools cost beside their text."""
FRAME_BYTES = 14
"""Bytes that stand for what a provider puts around a message, a call and a result."""
_UNITS_PER_TOKEN = 4


def utf16_length(text: str) -> int:
    """The length of a text in UTF-16 units, as JavaScript counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8_length(text: str) -> int:
    """The length of a text in UTF-8 bytes; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# -- the price that logs state ---------------------------------------------------------------------


def log_price(message: Message) -> int:
    """What a message costs according to the log format, in tokens."""
    return log_price_of_blocks(message["content"]) + FRAME


def log_price_of_blocks(blocks: Iterable[Mapping[str, Any]]) -> int:
    """What blocks cost according to the log format, in tokens, without the message around them."""
    return _sum(blocks, _log_price_of_block, FRAME)


def log_price_of_system(system: JsonValue) -> int:
    """What the system text of a canonical request header costs according to the log format."""
    return _quarter(_as_text(system)) + FRAME if system else 0


def log_price_of_tools(tools: JsonValue) -> int:
    """What the tools of a canonical request header cost according to the log format."""
    return _quarter(encode(tools).decode()) + FRAME if tools else 0


def log_price_of_header(header: Mapping[str, Any] | None) -> int:
    """What system text and tools of a canonical request header cost according to the log format."""
    if header is None:
        return 0
    return log_price_of_system(header.get("system")) + log_price_of_tools(header.get("tools"))


def _log_price_of_block(block: JsonValue) -> int:
    if (text := _text(block)) is not None:
        return _quarter(text) + FRAME
    if (call := _call(block)) is not None:
        return _quarter(call[0]) + _quarter(call[1]) + FRAME
    return _quarter(encode(block).decode()) + FRAME


def _quarter(text: str) -> int:
    return -(-utf16_length(text) // _UNITS_PER_TOKEN)


# -- the weight that estimates are made of ---------------------------------------------------------


def weight(message: Message) -> int:
    """What a message weighs, in bytes."""
    return weight_of_blocks(message["content"]) + FRAME_BYTES


def weight_of_blocks(blocks: Iterable[Mapping[str, Any]]) -> int:
    """What blocks weigh, in bytes, without the message around them."""
    return _sum(blocks, _weight_of_block, FRAME_BYTES)


def weight_of_call(name: str, arguments_bytes: int) -> int:
    """What a tool call weighs whose arguments are so many bytes."""
    return utf8_length(name) + arguments_bytes + FRAME_BYTES


def weight_of_header(header: Mapping[str, Any] | None) -> int:
    """What system text and tools of a canonical request header weigh, in bytes."""
    if header is None:
        return 0
    system, tools = header.get("system"), header.get("tools")
    heavy = utf8_length(_as_text(system)) + FRAME_BYTES if system else 0
    return heavy + (len(encode(tools)) if tools else 0)


def _weight_of_block(block: JsonValue) -> int:
    if (text := _text(block)) is not None:
        return utf8_length(text)
    if (call := _call(block)) is not None:
        return weight_of_call(call[0], utf8_length(call[1]))
    return len(encode(block))


# -- blocks ----------------------------------------------------------------------------------------


def _sum(blocks: Iterable[JsonValue], measure: Callable[[JsonValue], int], frame: int) -> int:
    """The sum over blocks; a tool result counts as what is in it, and its frame."""
    total = 0
    waiting = list(blocks)
    while waiting:
        block = waiting.pop()
        if (inner := _inner(block)) is None:
            total += measure(block)
        else:
            total += frame
            waiting.extend(inner)
    return total


def _as_text(value: JsonValue) -> str:
    return value if isinstance(value, str) else encode(value).decode()


def _text(block: JsonValue) -> str | None:
    if not isinstance(block, dict) or block.get("type") not in ("text", "reasoning"):
        return None
    text = block.get("text")
    return text if isinstance(text, str) else None


def _call(block: JsonValue) -> tuple[str, str] | None:
    if not isinstance(block, dict) or block.get("type") != "tool-call":
        return None
    name, arguments = block.get("name"), block.get("arguments")
    return (name, arguments) if isinstance(name, str) and isinstance(arguments, str) else None


def _inner(block: JsonValue) -> Sequence[JsonValue] | None:
    if not isinstance(block, dict) or block.get("type") != "tool-result":
        return None
    content = block.get("content")
    return content if isinstance(content, list | tuple) else None
