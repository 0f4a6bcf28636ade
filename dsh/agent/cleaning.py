"""One message as every provider takes it: something in it, no blank text, valid Unicode.

What is logged stays as it is; only the request differs. A message that needs nothing stays the same object,
so that whoever remembers something of it recognises it (`design.md` §4.19, `cases.md` AN-03).
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from dsh.session.message import Block, Message
from dsh.session.value import clean, freeze

EMPTY = "(empty)"
"""What stands for a message of the user that says nothing, where nothing else stands there."""
NO_OUTPUT = "(no output)"
"""What stands for a tool result that says nothing."""


def cleaned(message: Message) -> Message | None:
    """The message as it goes out; None where nothing of it would be left."""
    blocks = message["content"]
    if result_of(message) is not None:
        return cast(Message, clean(_with(message, [_filled(blocks[0])]) if _is_thin(blocks[0]) else message))
    if not says_something(blocks):
        return None
    if any(map(_is_left_out, blocks)):
        message = _with(message, [block for block in blocks if not _is_left_out(block)])
    return cast(Message, clean(message))


def empty(message: Message) -> Message:
    """The same message saying that it is empty."""
    return _with(message, [{"type": "text", "text": EMPTY}])


def result_of(message: Message) -> str | None:
    """The id of the call that a message answers, None for any other message."""
    blocks = message["content"]
    if len(blocks) == 1 and blocks[0]["type"] == "tool-result":
        return blocks[0]["toolCallId"]
    return None


def says_something(blocks: Sequence[Block]) -> bool:
    """Whether a message of such blocks is more than blank text and blank reasoning.

    A result among other blocks answers nobody; blocks that nobody knows count.
    """
    return any(not _is_left_out(block) and not _is_blank(block, "reasoning") for block in blocks)


def _is_left_out(block: Block) -> bool:
    return block["type"] == "tool-result" or _is_blank(block, "text")


def _is_blank(block: Block, kind: str) -> bool:
    return block["type"] == kind and not block["text"].strip()  # type: ignore[typeddict-item]


def _is_thin(result: Block) -> bool:
    """Whether a tool result says nothing, or that among other things."""
    content = _content_of(result)
    return not content or any(_is_blank(block, "text") for block in content)


def _filled(result: Block) -> Mapping[str, Any]:
    """The tool result without its blank texts, and never without anything."""
    kept = [block for block in _content_of(result) if not _is_blank(block, "text")]
    return {**result, "content": kept or [{"type": "text", "text": NO_OUTPUT}]}


def _content_of(result: Block) -> Sequence[Block]:
    return result["content"] if result["type"] == "tool-result" else ()


def _with(message: Message, blocks: Sequence[Mapping[str, Any]]) -> Message:
    return cast(Message, freeze({**message, "content": list(blocks)}, "outgoing message", stored=True))
