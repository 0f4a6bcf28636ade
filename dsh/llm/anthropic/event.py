"""What a Messages server streams, as one struct: only the members that are read, leniently typed.

Additional members are skipped without being built. Source of the format: Anthropic's documentation of
streamed messages.
"""

from typing import Any

import msgspec

from dsh.llm.transport.clean_json import clean_json


class WireDelta(msgspec.Struct, gc=False):
    """What an event adds to a block, or to the message."""

    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: Any = None
    stop_details: Any = None


class WireBlock(msgspec.Struct, gc=False):
    """The block that an event opens."""

    type: str = ""
    id: str | None = None
    name: str | None = None
    input: Any = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None


class WireMessage(msgspec.Struct, gc=False):
    """The message as it is when the stream begins."""

    usage: Any = None


class WireEvent(msgspec.Struct, gc=False):
    """One event of the stream."""

    type: str = ""
    index: int = 0
    delta: WireDelta | None = None
    content_block: WireBlock | None = None
    message: WireMessage | None = None
    usage: Any = None
    error: Any = None


KNOWN = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "error",
    }
)
"""The events that are read; others are ignored, whatever they hold."""


class _Type(msgspec.Struct, gc=False):
    type: str = ""


_decode = msgspec.json.Decoder(WireEvent).decode
_decode_type = msgspec.json.Decoder(_Type).decode


def decode_event(payload: bytes) -> WireEvent:
    """One event; one without a type where it is of no kind that is read.

    Raises:
        ValueError: it is not JSON, or not an event.
    """
    try:
        return _decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return _decode_again(payload)


def _decode_again(payload: bytes) -> WireEvent:
    """The slow way: what is no Unicode becomes U+FFFD, what is of an unknown kind may look as it likes."""
    text = clean_json(payload)
    return _decode(text) if _decode_type(text).type in KNOWN else WireEvent()


def merge_usage(known: dict[str, int], value: Any) -> None:
    """Add a report of usage to what is known. Reports are cumulative, so the later one counts; one that says
    0 of the input, as some servers do at the end, says nothing of it."""
    if not isinstance(value, dict):
        return
    for member in (
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
    ):
        found = value.get(member)
        if isinstance(found, (int, float)) and not isinstance(found, bool):
            count = int(found) if 0 <= found <= 2**53 - 1 else 0
            known[member] = count if count or member == "output_tokens" else known.get(member, 0)


def usage_of(known: dict[str, int]) -> dict[str, Any] | None:
    """The usage that the log records; None where nothing was reported. Its parts do not overlap here."""
    if not known:
        return None
    usage = {"inputTokens": known.get("input_tokens", 0), "outputTokens": known.get("output_tokens", 0)}
    if (read := known.get("cache_read_input_tokens")) is not None:
        usage["cacheReadTokens"] = read
    if (written := known.get("cache_creation_input_tokens")) is not None:
        usage["cacheWriteTokens"] = written
    return usage
