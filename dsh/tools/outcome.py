"""How values and exceptions become results: checked, rendered, frozen."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from dsh.errors import DshError
from dsh.session.error import JsonError
from dsh.session.message import Message
from dsh.session.payload.block import blocks as check_blocks
from dsh.session.payload.block import user_message as check_user_message
from dsh.session.payload.shape import Misfit
from dsh.session.value import clean, freeze
from dsh.tools.definition import Blocks, ToolDefinition
from dsh.tools.error import AbortError, ToolOutputError
from dsh.tools.execution import ToolExecution, ToolFailure, ToolResult, ToolSuccess
from dsh.tools.foreign import called
from dsh.tools.schema import validate
from dsh.unicode import valid

Content = tuple[Mapping[str, Any], ...]
EMPTY_FEEDBACK = "the result of this call was blocked without a reason"


def error_text(error: BaseException) -> str:
    """The message of an exception, whatever its `__str__` does; its class name where it has none."""
    try:
        return valid(str(error)) or type(error).__name__
    except BaseException:
        return type(error).__name__


def failure_of(error: BaseException) -> ToolFailure:
    """The failed result behind an exception. Only our own errors with a code carry name and code."""
    code = error.code if isinstance(error, DshError) and isinstance(error.code, str) else ""
    if not code:
        return ToolFailure.of(error_text(error))
    return ToolFailure.of(error_text(error), name=type(error).__name__, code=code)


def aborted(*, started: bool, contexts: tuple[Message, ...] = ()) -> ToolFailure:
    """The result of a cancelled call; what the tool had to say to the model is kept."""
    failure = failure_of(AbortError(started=started))
    return msgspec.structs.replace(failure, additional_contexts=contexts)


def outcome_unknown(reason: str) -> ToolFailure:
    """The result of a call whose body was begun and will never tell how it ended."""
    return ToolFailure.of(
        f"{reason}, so the outcome of this call is unknown; check what it did before repeating it",
        name="ToolOutcomeUnknownError",
        code="TOOL_OUTCOME_UNKNOWN",
    )


def success_of(definition: ToolDefinition, execution: ToolExecution, value: Any) -> ToolSuccess:
    """Check a tool's value and project it.

    Raises:
        ToolOutputError: value, rendering or metadata break the contract of `definition.output`.
    """
    tool, output = f'tool "{definition.name}"', definition.output
    try:
        value = freeze(value, "value", stored=True)
    except JsonError as error:
        raise ToolOutputError(f"{tool} returned a value that is not lossless JSON: {error}") from None
    if violations := validate(output.schema, value):
        raise ToolOutputError(f"{tool} returned a value that breaks its schema: {'; '.join(violations[:20])}")
    meta: Any = msgspec.UNSET
    try:
        content = content_of(called("render", output.render, execution.arguments, value))
        if output.presentation_meta is not None and execution.parent is None:
            found = called("presentation_meta", output.presentation_meta, execution.arguments, value)
            meta = msgspec.UNSET if found is None else clean(freeze(found, "meta"))
    except Exception as error:
        raise ToolOutputError(f"{tool} cannot show its value: {error_text(error)}") from error
    return ToolSuccess(value=value, content=content, meta=meta)


def content_of(rendered: str | Blocks) -> Content:
    """Content blocks as the log takes them: a text becomes one block, everything is frozen and valid Unicode.

    Blocks of an unknown type pass; those of a known one have its fields.

    Raises:
        ToolOutputError: these are no blocks.
    """
    if isinstance(rendered, str):
        rendered = [{"type": "text", "text": str(rendered)}]
    if not isinstance(rendered, list | tuple):
        raise ToolOutputError(f"content must be a text or a list of blocks, found {type(rendered).__name__}")
    try:
        blocks = clean(freeze(rendered, "content"))
    except JsonError as error:
        raise ToolOutputError(f"content is not lossless JSON: {error}") from None
    for at, block in enumerate(blocks):
        if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
            raise ToolOutputError(f'content[{at}] must be a block with a "type"')
    _fits(check_blocks, "content", blocks)
    return tuple(blocks)


def _contexts(given: tuple[Message, ...]) -> tuple[Message, ...]:
    """User messages as the inbox takes them."""
    frozen = tuple(clean(freeze(message, "additional context")) for message in given)
    for message in frozen:
        _fits(check_user_message, "additional context", message)
    return frozen


def _fits(check: Callable[[Any], None], what: str, value: Any) -> None:
    try:
        check(value)
    except Misfit as misfit:
        raise ToolOutputError(f"{what}{misfit.path}: {misfit.problem}") from None


def blocked(feedback: Blocks, contexts: tuple[Message, ...]) -> ToolFailure:
    """The result that a post-execute listener put in place of another one."""
    content = content_of(feedback)
    lines = [b["text"] if b["type"] == "text" else f"[{b['type']} content]" for b in content]
    return ToolFailure(
        message="\n".join(lines) or EMPTY_FEEDBACK, content=content, additional_contexts=contexts
    )


def settled(result: ToolResult) -> ToolResult:
    """The result with everything that goes on from here deeply immutable; a failure where it cannot be."""
    try:
        return msgspec.structs.replace(
            result,
            content=content_of(result.content),
            meta=result.meta if result.meta is msgspec.UNSET else clean(freeze(result.meta, "meta")),
            additional_contexts=_contexts(result.additional_contexts),
        )
    except Exception as error:
        return failure_of(ToolOutputError(error_text(error)))
