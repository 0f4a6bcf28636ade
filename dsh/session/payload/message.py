"""Payloads of messages, streamed chunks, tool calls and their results."""

from collections.abc import Sequence
from typing import Any, Literal, NotRequired, TypedDict

from dsh.session.message import Message
from dsh.session.payload.block import blocks, details, is_name, message_of, user_message
from dsh.session.payload.request import LlmFailure, TokenUsage
from dsh.session.payload.shape import Count, Misfit, Ordinal, Payload, at, choice, mapped, payload, shape
from dsh.session.value import JsonObject


class AssistantMessage(TypedDict):
    """A reply of the model. One without content only carries usage."""

    turn: Ordinal
    step: Ordinal
    message: JsonObject
    """A message of role `assistant` with source kind `model`."""
    interrupted: NotRequired[Literal[True]]
    """The stream was cancelled after text or reasoning had come; or the model broke it off, and the row
    `agent-loop` keeps such text."""
    usage: NotRequired[TokenUsage]


class AssistantChunk(TypedDict):
    """One piece of a streamed reply as it came, those of failed attempts too; deltas are stored packed."""

    turn: Ordinal
    step: Ordinal
    chunk: JsonObject
    """Of type `block-start`, `text-delta`, `reasoning-delta`, `tool-call-delta`, `block-end`, `usage` or
    `finish`."""


class ToolCall(TypedDict):
    """A tool call begins."""

    turn: Ordinal
    step: Ordinal
    callId: str
    name: str
    arguments: str
    """The raw text of the model, possibly not JSON."""


class ToolError(TypedDict):
    """What went wrong with a call."""

    name: str
    code: str


class ToolResult(TypedDict):
    """The answer to a tool call."""

    turn: Ordinal
    step: Ordinal
    message: JsonObject
    """A message of role `user` with source kind `tool` and exactly one `tool-result` block."""
    error: NotRequired[ToolError]
    meta: NotRequired[Any]
    """JSON that belongs to the tool."""


class CodeDispatchStart(TypedDict):
    """A program of the model calls a tool."""

    rootCallId: str
    parentCallId: str
    subCallId: str
    """`<parent>:code:<n>`."""
    name: str
    arguments: Any
    """Parsed JSON."""


class CodeDispatch(TypedDict):
    """A call from a program has its result, one for each start."""

    rootCallId: str
    parentCallId: str
    subCallId: str
    name: str
    arguments: Any
    isError: bool
    content: Sequence[Any]
    """Content blocks."""


class _BlockStart(TypedDict):
    index: Count
    blockType: str


class _Delta(TypedDict):
    index: Count
    text: str


class _ToolCallDelta(TypedDict):
    index: Count
    id: str
    name: NotRequired[str]
    argumentsDelta: str


class _BlockEnd(TypedDict):
    index: Count
    block: JsonObject


class _Usage(TypedDict):
    usage: TokenUsage


class _Finish(TypedDict):
    reason: JsonObject
    replayState: NotRequired[Any]


class _Failed(TypedDict):
    failure: LlmFailure


_reason = choice("kind", {"aborted": shape(_Failed), "error": shape(_Failed)}, is_open=True)
_chunk = choice(
    "type",
    {
        "text-delta": shape(_Delta),
        "reasoning-delta": shape(_Delta),
        "tool-call-delta": shape(_ToolCallDelta),
        "block-start": shape(_BlockStart),
        "block-end": shape(_BlockEnd),
        "usage": shape(_Usage),
        "finish": shape(_Finish, at("reason", _reason)),
    },
)


def _user(data: Any) -> None:
    message_of(data, "user")


def _assistant(data: Any) -> None:
    source = message_of(mapped(data).get("message"), "assistant")
    if source["kind"] != "model" or not is_name(source.get("provider")) or not is_name(source.get("model")):
        raise Misfit('the source has kind "model", a provider and a model', ".message.source")


def _result(data: Any) -> None:
    message = mapped(data).get("message")
    source = message_of(message, "user")
    if source["kind"] != "tool" or not is_name(source.get("callId")):
        raise Misfit('the source has kind "tool" and a callId', ".message.source")
    content = mapped(message)["content"]
    block = content[0] if len(content) == 1 else None
    if not isinstance(block, dict) or block.get("type") != "tool-result":
        raise Misfit("the message holds exactly one tool-result block", ".message.content")
    if not isinstance(block.get("content"), list | tuple):
        raise Misfit("the content of the tool-result block is a list", ".message.content[0].content")
    if block.get("toolCallId") != source["callId"]:
        raise Misfit(
            f"the block answers {block.get('toolCallId')!r:.80}, the source says {source['callId']!r:.80}",
            ".message",
        )


_message = at("message", details)

PAYLOADS: dict[str, Payload] = {
    "user/message": Payload((Message,), user_message, _user),
    "assistant/message": payload(AssistantMessage, _assistant, _message, refuse=_assistant),
    "assistant/chunk": payload(AssistantChunk, at("chunk", _chunk)),
    "tool/call": payload(ToolCall),
    "tool/result": payload(ToolResult, _result, _message, refuse=_result),
    "tool/code-dispatch-start": payload(CodeDispatchStart),
    "tool/code-dispatch": payload(CodeDispatch, at("content", blocks)),
}
"""By event type."""
