"""How values and exceptions become results: checked, rendered, frozen."""

from typing import Any

import msgspec

from dsh.errors import DshError
from dsh.kernel.foreign import bounded, text_of
from dsh.session.error import JsonError
from dsh.session.message import Message
from dsh.session.value import freeze
from dsh.tools.content import Blocks, content_of, contexts_of, meta_of
from dsh.tools.definition import ToolDefinition
from dsh.tools.error import AbortError, ToolOutputError
from dsh.tools.execution import ToolExecution, ToolFailure, ToolSuccess
from dsh.tools.foreign import called
from dsh.tools.schema import validate

EMPTY_FEEDBACK = "the result of this call was blocked without a reason"


def error_text(error: BaseException) -> str:
    """The message of an exception, whatever its `__str__` does; its class name where it has none."""
    try:
        text = text_of(error) if isinstance(error, BaseExceptionGroup) else str(error)
        return bounded(text) or type(error).__name__
    except BaseException:
        return type(error).__name__


def failure_of(error: BaseException) -> ToolFailure:
    """The failed result behind an exception. Only our own errors with a code carry name and code."""
    code = error.code if isinstance(error, DshError) and isinstance(error.code, str) else ""
    if not code:
        return ToolFailure.of(error_text(error))
    return ToolFailure.of(error_text(error), name=type(error).__name__, code=str.__str__(code))


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
            meta = msgspec.UNSET if found is None else meta_of(found)
    except Exception as error:
        raise ToolOutputError(f"{tool} cannot show its value: {error_text(error)}") from error
    return ToolSuccess(value=value, content=content, meta=meta)


def checked_failure(failure: ToolFailure) -> ToolFailure:
    """One that a wrapper has made, as far as it goes on from here.

    Raises:
        ToolOutputError: its content or metadata are not what the log takes.
    """
    if not {type(failure.name), type(failure.code)} <= {str, type(None)}:
        raise ToolOutputError("name and code of a failure must be texts")
    meta = failure.meta if failure.meta is msgspec.UNSET else meta_of(failure.meta)
    return msgspec.structs.replace(failure, content=content_of(failure.content), meta=meta)


def blocked(feedback: Blocks, contexts: tuple[Message, ...]) -> ToolFailure:
    """The result that a post-execute listener put in place of another one."""
    content = content_of(feedback)
    lines = [b["text"] if b["type"] == "text" else f"[{b['type']} content]" for b in content]
    return ToolFailure(
        message="\n".join(lines) or EMPTY_FEEDBACK,
        content=content,
        additional_contexts=contexts_of(contexts),
    )
