"""What is changed in a request at the last moment, for the model that gets it; the log keeps the original."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from dsh.session.message import Block, Message


def without_images(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages with a stable text in place of each image, for a model that takes text only."""
    return tuple(_text_only(message) for message in messages)


def without_foreign_state(messages: Sequence[Message], is_ours: Callable[[str], bool]) -> tuple[Message, ...]:
    """The messages without replay state of providers that another adapter serves now."""
    return tuple(_stripped(message, is_ours) for message in messages)


def _stripped(message: Message, is_ours: Callable[[str], bool]) -> Message:
    source = message["source"]
    if "replayState" not in source or is_ours(str(source.get("provider"))):
        return message
    kept = {key: value for key, value in source.items() if key != "replayState"}
    return cast(Message, {**message, "source": kept})


def _text_only(message: Message) -> Message:
    blocks = message["content"]
    if not _has_image(blocks):
        return message
    return cast(Message, {**message, "content": _replaced(blocks)})


def _has_image(blocks: Sequence[Block]) -> bool:
    return any(
        block["type"] == "image" or (block["type"] == "tool-result" and _has_image(block["content"]))
        for block in blocks
    )


def _replaced(blocks: Sequence[Block]) -> tuple[Mapping[str, Any], ...]:
    made: list[Mapping[str, Any]] = []
    for block in blocks:
        if block["type"] == "image":
            made.append(
                {"type": "text", "text": f"[image {_digest(block['attachment'])[:8]} left out: text only]"}
            )
        elif block["type"] == "tool-result":
            made.append({**block, "content": _replaced(block["content"])})
        else:
            made.append(block)
    return tuple(made)


def _digest(attachment: Mapping[str, Any]) -> str:
    """The attachment's own digest, else one of its reference: the same image, the same text."""
    for key in ("digest", "sha256", "id"):
        found = attachment.get(key)
        if isinstance(found, str) and found:
            return found.rpartition(":")[2]
    return hashlib.sha256(json.dumps(attachment, sort_keys=True).encode()).hexdigest()
