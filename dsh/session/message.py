"""Messages and what they are made of, the functions that build them, and tools as a model sees them.

One representation serves inbox, log and model request. Messages are frozen JSON objects; the TypedDicts
below describe them to the type checker. Unknown block types and source kinds pass through untouched
(`spec/session-log.md` §4).
"""

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict, cast

from msgspec import Struct

from dsh.session.value import JsonObject, freeze


class TextBlock(TypedDict):
    """Text that is shown."""

    type: Literal["text"]
    text: str


class ReasoningBlock(TypedDict):
    """What the model thought before it answered."""

    type: Literal["reasoning"]
    text: str


class ImageBlock(TypedDict):
    """An image; its bytes are in the attachment store."""

    type: Literal["image"]
    attachment: JsonObject


class ToolCallBlock(TypedDict):
    """A tool call; `arguments` is the raw text of the model, possibly not JSON."""

    type: Literal["tool-call"]
    id: str
    name: str
    arguments: str


class ToolResultBlock(TypedDict):
    """The answer to one tool call."""

    type: Literal["tool-result"]
    toolCallId: str
    content: "Sequence[Block]"
    isError: NotRequired[bool]


Block: TypeAlias = TextBlock | ReasoningBlock | ImageBlock | ToolCallBlock | ToolResultBlock


class Message(TypedDict):
    """One message. `source` has a non-empty `kind`; its other keys depend on it."""

    id: str
    role: Literal["user", "assistant", "system"]
    content: Sequence[Block]
    source: JsonObject


class ToolSchema(Struct, frozen=True):
    """What a model is told of one tool."""

    name: str
    description: str
    parameters: JsonObject
    """JSON Schema of the arguments."""

    def to_json(self) -> dict[str, Any]:
        """`{name, description, parameters}`, as a request header holds it."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


def new_message_id() -> str:
    """A fresh message id."""
    return str(uuid.uuid4())


def text_block(text: str) -> TextBlock:
    """A text block."""
    return cast(TextBlock, freeze({"type": "text", "text": text}, "text block"))


def user_message(
    content: str | Iterable[JsonObject | Block],
    source: JsonObject | None = None,
    message_id: str | None = None,
) -> Message:
    """A message to the model. `source` defaults to the person at the keyboard, the id to a fresh one."""
    blocks = [text_block(content)] if isinstance(content, str) else list(content)
    return _message(
        {
            "content": blocks,
            "source": {"kind": "user"} if source is None else source,
            "role": "user",
            "id": message_id or new_message_id(),
        }
    )


def assistant_message(
    content: Iterable[JsonObject | Block],
    provider: str,
    model: str,
    replay_state: JsonObject | None = None,
    message_id: str | None = None,
) -> Message:
    """A reply of the model; `replay_state` is what its adapter wants to see again."""
    source: dict[str, Any] = {"kind": "model", "provider": provider, "model": model}
    if replay_state is not None:
        source["replayState"] = replay_state
    return _message(
        {
            "role": "assistant",
            "content": list(content),
            "source": source,
            "id": message_id or new_message_id(),
        }
    )


def tool_result_message(
    call_id: str,
    content: Iterable[JsonObject | Block],
    is_error: bool = False,
    *,
    message_id: str | None = None,
) -> Message:
    """The answer to the tool call `call_id`."""
    block = {"type": "tool-result", "toolCallId": call_id, "content": list(content), "isError": is_error}
    return _message(
        {
            "source": {"kind": "tool", "callId": call_id},
            "content": [block],
            "role": "user",
            "id": message_id or new_message_id(),
        }
    )


def text_of(message: Message) -> str:
    """The text blocks of a message, joined without anything between them."""
    return text_in(message["content"])


def text_in(blocks: Iterable[Block]) -> str:
    """The text blocks among these, joined without anything between them."""
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def _message(value: dict[str, Any]) -> Message:
    return cast(Message, freeze(value, "message"))
