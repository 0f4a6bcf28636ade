"""What a chat-completions server streams, as structs: only the members that are read, leniently typed.

Additional members are skipped without being built. Members that servers fill in odd ways are taken as they
come and judged where they are used.
"""

from typing import Any

import msgspec


class WireFunction(msgspec.Struct, gc=False):
    """`function` of a tool call fragment."""

    name: str | None = None
    arguments: Any = None
    """Mostly a JSON string; some servers send the object itself."""


class WireToolCall(msgspec.Struct, gc=False):
    """One fragment of a tool call."""

    index: int | None = None
    id: str | None = None
    function: WireFunction | None = None


class WireDelta(msgspec.Struct, gc=False):
    """What a choice adds."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: Any = None
    """The same under another name, where it is a string."""
    tool_calls: list[WireToolCall] | None = None


class WireChoice(msgspec.Struct, gc=False):
    """One choice. `finish_reason` counts only where it is a string."""

    index: int | None = None
    delta: WireDelta | None = None
    finish_reason: Any = None
    error: Any = None
    """Some gateways report a failure here instead of beside the choices."""


class WireEvent(msgspec.Struct, gc=False):
    """One event of the stream."""

    choices: list[WireChoice] | None = None
    usage: Any = None
    error: Any = None


_decode = msgspec.json.Decoder(WireEvent).decode


def decode_event(payload: bytes) -> WireEvent:
    """One event.

    Raises:
        ValueError: it is not JSON, or not an event.
    """
    try:
        return _decode(payload)
    except (msgspec.DecodeError, RecursionError):
        from dsh.llm.transport.clean_json import clean_json

        return _decode(clean_json(payload))


def usage_of(value: Any) -> dict[str, Any] | None:
    """The usage that the log records, from the wire's usage object; None where nothing was reported.

    Cached tokens are part of `prompt_tokens` on this wire and are taken out. What is missing, negative or
    no finite number counts as 0; more cached than prompt tokens leave an input of 0.
    """
    if not isinstance(value, dict):
        return None
    cached = _count(_member(value, "prompt_tokens_details", "cached_tokens"))
    if cached is None:
        cached = _count(value.get("prompt_cache_hit_tokens"))
    usage = {
        "inputTokens": max(0, (_count(value.get("prompt_tokens")) or 0) - (cached or 0)),
        "outputTokens": _count(value.get("completion_tokens")) or 0,
    }
    if cached is not None:
        usage["cacheReadTokens"] = cached
    reasoning = _count(_member(value, "completion_tokens_details", "reasoning_tokens"))
    if reasoning is not None:
        usage["reasoningTokens"] = reasoning
    return usage


def _member(value: dict[str, Any], outer: str, inner: str) -> Any:
    found = value.get(outer)
    return found.get(inner) if isinstance(found, dict) else None


def _count(value: Any) -> int | None:
    """A token count; None where there is none, 0 where it is no use."""
    if type(value) not in (int, float):
        return None
    return int(value) if 0 <= value <= 2**53 - 1 else 0


def arguments_text(value: Any) -> str:
    """The argument text of a fragment; an object in its place is serialised."""
    if isinstance(value, str):
        return value
    return "" if value is None else msgspec.json.encode(value).decode()
