"""How much text messages put before a model, in two measures that need no tokenizer.

The *log price* counts UTF-16 units, four to a token: what `shadowedTokenCount` has to say, so that every
reader of a log comes to the same number (`spec/tools.md` §8). The *weight* counts UTF-8 bytes; an estimate in
tokens is a weight over a number of bytes that is learned from what a provider reports. A Chinese character is
one unit and three bytes, and that is why only weights decide.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dsh.session.message import Message
from dsh.session.value import JsonValue, encode

_UNITS_PER_TOKEN = 4
_FRAME = 4
"""Tokens that a block, a message, a system text and a list of tools cost beside their text."""
FRAME_BYTES = 14
"""Bytes that stand for what a provider puts around a message, a call and a result."""


def utf16_length(text: str) -> int:
    """The length of a text in UTF-16 units, as JavaScript counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def utf8_length(text: str) -> int:
    """The length of a text in UTF-8 bytes; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# -- the price that logs state ---------------------------------------------------------------------


def log_price(message: Message) -> int:
    """What a message costs according to the log format, in tokens."""
    return log_price_of_blocks(message["content"]) + _FRAME


def log_price_of_blocks(blocks: Iterable[Mapping[str, Any]]) -> int:
    """What blocks cost according to the log format, in tokens, without the message around them."""
    return sum(map(_log_price_of_block, blocks))


def log_price_of_header(header: Mapping[str, Any] | None) -> int:
    """What system text and tools of a canonical request header cost according to the log format."""
    if header is None:
        return 0
    return log_price_of_system(header.get("system")) + log_price_of_tools(header.get("tools"))


def log_price_of_system(system: str | None) -> int:
    """The part of a header's price that is its system text."""
    return _quarter(system) + _FRAME if system else 0


def log_price_of_tools(tools: Sequence[JsonValue] | None) -> int:
    """The part of a header's price that is its tools."""
    return _quarter(_json(tools)) + _FRAME if tools else 0


def _log_price_of_block(block: Mapping[str, Any]) -> int:
    match block.get("type"):
        case "text" | "reasoning":
            return _quarter(block["text"]) + _FRAME
        case "tool-call":
            return _quarter(block["name"]) + _quarter(block["arguments"]) + _FRAME
        case "tool-result":
            return log_price_of_blocks(block["content"]) + _FRAME
    return _FRAME + _quarter(_json(block))


def _quarter(text: str) -> int:
    return -(-utf16_length(text) // _UNITS_PER_TOKEN)


# -- the weight that estimates are made of ---------------------------------------------------------


def weight(message: Message) -> int:
    """What a message weighs, in bytes."""
    return weight_of_blocks(message["content"]) + FRAME_BYTES


def weight_of_blocks(blocks: Iterable[Mapping[str, Any]]) -> int:
    """What blocks weigh, in bytes, without the message around them."""
    return sum(map(_weight_of_block, blocks))


def weight_of_header(header: Mapping[str, Any] | None) -> int:
    """What system text and tools of a canonical request header weigh, in bytes."""
    if header is None:
        return 0
    system, tools = header.get("system"), header.get("tools")
    heavy = utf8_length(system) + FRAME_BYTES if system else 0
    return heavy + (len(encode(tools)) if tools else 0)


def weight_of_call(name: str, arguments_bytes: int) -> int:
    """What a tool call weighs whose arguments are so many bytes."""
    return utf8_length(name) + arguments_bytes + FRAME_BYTES


def _weight_of_block(block: Mapping[str, Any]) -> int:
    match block.get("type"):
        case "text" | "reasoning":
            return utf8_length(block["text"])
        case "tool-call":
            return weight_of_call(block["name"], utf8_length(block["arguments"]))
        case "tool-result":
            return weight_of_blocks(block["content"]) + FRAME_BYTES
    return len(encode(block))


def _json(value: JsonValue) -> str:
    return encode(value).decode()
