"""What tools and listeners give for the model to read, as the log takes it: frozen, checked, valid text."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from dsh.session.error import JsonError
from dsh.session.message import Message
from dsh.session.payload.block import blocks as check_blocks
from dsh.session.payload.block import user_message as check_user_message
from dsh.session.payload.shape import Misfit
from dsh.session.value import clean, freeze
from dsh.tools.error import ToolOutputError

Blocks = Sequence[Mapping[str, Any]]
"""Content blocks such as `{"type": "text", "text": …}`, as they are given."""
Content = tuple[Mapping[str, Any], ...]
"""The same as the log takes them."""


def content_of(rendered: str | Blocks) -> Content:
    """Content blocks; a text becomes one.

    Blocks of an unknown type pass; those of a known one have its fields.

    Raises:
        ToolOutputError: these are no blocks.
    """
    if isinstance(rendered, str):
        rendered = [{"type": "text", "text": str(rendered)}]
    if not isinstance(rendered, list | tuple):
        raise ToolOutputError(f"content must be a text or a list of blocks, found {type(rendered).__name__}")
    blocks = _checked(rendered, "content")
    for at, block in enumerate(blocks):
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            raise ToolOutputError(f'content[{at}] must be a block with a "type"')
    _fits(check_blocks, "content", blocks)
    return tuple(blocks)


def contexts_of(messages: Iterable[Message]) -> tuple[Message, ...]:
    """User messages as the inbox takes them.

    Raises:
        ToolOutputError: one of them is none.
    """
    return tuple(_context(message) for message in messages)


def meta_of(value: Any) -> Any:
    """JSON for `tool/result.meta`.

    Raises:
        ToolOutputError: it is none.
    """
    return _checked(value, "meta")


def _context(message: Message) -> Message:
    frozen = _checked(message, "additional context")
    _fits(check_user_message, "additional context", frozen)
    return cast(Message, frozen)


def _checked(value: Any, what: str) -> Any:
    try:
        return clean(freeze(value, what))
    except JsonError as error:
        raise ToolOutputError(f"{what} is not lossless JSON: {error}") from None


def _fits(check: Callable[[Any], None], what: str, value: Any) -> None:
    try:
        check(value)
    except Misfit as misfit:
        raise ToolOutputError(f"{what}{misfit.path}: {misfit.problem}") from None
