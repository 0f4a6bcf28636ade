"""What is changed in a request at the last moment, for the model that gets it; the log keeps the original."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from operator import is_not
from typing import Any, cast

from dsh.llm.memo import Seen
from dsh.session.message import Block, Message


class Adapted:
    """The messages of one conversation as one route gets them. State: how far it is, what came of it."""

    def __init__(self) -> None:
        self._seen = Seen()
        self._rules: object = None
        self._made: list[Message] | None = None
        """None as long as every message is as it was."""

    def of(
        self, messages: tuple[Message, ...], rules: object, change: Callable[[Message], Message]
    ) -> tuple[Message, ...]:
        """The messages, each changed; the same tuple where none is. Costs as much as there are new ones.

        Args:
            rules: says what `change` does; equal rules change equally.
        """
        count = self._seen.count(messages) if rules == self._rules else 0
        new = messages[count:]
        added = [change(message) for message in new]
        made = self._made if count else None
        if made is None and any(map(is_not, added, new)):
            made = list(messages[:count])
        if made is not None:
            made += added
        self._rules, self._made = rules, made
        self._seen.note(messages)
        return messages if made is None else tuple(made)


def without_images(message: Message) -> Message:
    """The message with a stable text in place of each image, for a model that takes text only."""
    blocks = message["content"]
    if not _has_image(blocks):
        return message
    return cast(Message, {**message, "content": _replaced(blocks)})


def without_foreign_state(message: Message, is_ours: Callable[[str], bool]) -> Message:
    """The message without the replay state of a provider that another adapter serves now."""
    source = message["source"]
    if "replayState" not in source or is_ours(str(source.get("provider"))):
        return message
    kept = {key: value for key, value in source.items() if key != "replayState"}
    return cast(Message, {**message, "source": kept})


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
