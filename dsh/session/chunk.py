"""The pieces of a streamed model reply, as structs: the hot path of the program.

On the wire and in the log each is an object whose `type` comes first and whose other keys follow in the
order of the fields (`spec/session-log.md` §4). Usage precedes finish; nothing follows finish.
"""

from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from dsh.session.error import InvalidEvent
from dsh.session.value import JsonObject


class BlockStart(Struct, frozen=True, tag_field="type", tag="block-start", rename="camel"):
    """A content block begins."""

    index: int
    block_type: str


class TextDelta(Struct, frozen=True, tag_field="type", tag="text-delta", rename="camel"):
    """A piece of answer text."""

    index: int
    text: str


class ReasoningDelta(Struct, frozen=True, tag_field="type", tag="reasoning-delta", rename="camel"):
    """A piece of reasoning text."""

    index: int
    text: str


class ToolCallDelta(Struct, frozen=True, tag_field="type", tag="tool-call-delta", rename="camel"):
    """A piece of a tool call's raw argument text; some providers name the tool on the first one only."""

    index: int
    id: str
    name: str | UnsetType = UNSET
    arguments_delta: str = ""


class BlockEnd(Struct, frozen=True, tag_field="type", tag="block-end", rename="camel"):
    """A content block is complete; `block` is the block itself."""

    index: int
    block: dict[str, Any]


class UsageChunk(Struct, frozen=True, tag_field="type", tag="usage", rename="camel"):
    """What the reply consumed."""

    usage: dict[str, Any]
    """`{inputTokens, outputTokens, cacheReadTokens?, cacheWriteTokens?, reasoningTokens?}`. Input and cached
    tokens are disjoint: billed input is the sum of the three."""


class Finish(Struct, frozen=True, tag_field="type", tag="finish", rename="camel"):
    """The last chunk: why the reply ended, and what the adapter wants back with the next request."""

    reason: dict[str, Any]
    """`{kind}`: `stop`, `tool-calls`, `max-tokens`, `aborted`, or `error` with a `failure`."""
    replay_state: dict[str, Any] | UnsetType = UNSET


Delta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta
Chunk: TypeAlias = BlockStart | Delta | BlockEnd | UsageChunk | Finish


def chunk_from_json(value: JsonObject) -> Chunk:
    """The chunk that an `assistant/chunk` event holds.

    Raises:
        InvalidEvent: it is none of the seven kinds, or lacks a field.
    """
    try:
        chunk: Chunk = msgspec.convert(value, Chunk)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        raise InvalidEvent(f"stream chunk: {error}") from None
    return chunk


def chunk_to_json(chunk: Chunk) -> dict[str, Any]:
    """The JSON object of a chunk, keys in written order."""
    plain: dict[str, Any] = msgspec.to_builtins(chunk)
    return plain
