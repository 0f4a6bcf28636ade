"""How a failure of any kind reads in `turn/end`, and the errors of this package (`spec/agent-loop.md` §9)."""

from typing import Any

from dsh.agent.contract import CancelCause
from dsh.agent.origin import origin_of
from dsh.errors import DshError
from dsh.kernel.foreign import bounded
from dsh.llm.failure import LlmError, LlmFailure
from dsh.session.error import JsonError
from dsh.session.value import freeze
from dsh.session.vocabulary import payload_fault
from dsh.unicode import valid


class AgentError(DshError):
    """A request to an agent or to the registry that cannot be met."""


class AgentBusyError(AgentError):
    """Maintenance was asked for while the agent runs or is being maintained."""


class PromptError(DshError):
    """The system prompt cannot be put together."""


class InvariantError(DshError):
    """A rule between log and request is broken. Always a bug of the program or of a plugin."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="INVARIANT")


def failure_of(error: BaseException) -> LlmFailure:
    """The durable record of an error: an `LlmError`'s own facts, else its rendered causes, hint and code.

    Never raises, and the log takes every record: facts that are of no use to it are replaced.
    """
    try:
        if isinstance(error, LlmError):
            facts = error.failure
            fitting = {"message": bounded(facts.message), "code": valid(facts.code)}
            return LlmFailure.from_json(facts.to_json() | fitting)
        code = error.code if isinstance(error, DshError) and error.code else "UNKNOWN"
        hint = f"; {error.hint}" if isinstance(error, DshError) and error.hint else ""
        text = bounded(render_causes(error)) + valid(hint + origin_of(error))
        return LlmFailure.from_json({"message": text, "code": valid(code)})
    except Exception:
        return LlmFailure(bounded(render_causes(error)), "UNKNOWN")


def checked_cause(cause: CancelCause) -> Any:
    """A cause as `turn/end` will hold it. One that it cannot hold would leave the turn without an end.

    Raises:
        AgentError: it is none (code INVALID_CAUSE).
    """
    try:
        end = freeze({"turn": 1, "reason": {"kind": "aborted", "reason": cause}}, "turn/end")
        fault = payload_fault("turn/end", end)
    except JsonError as error:
        fault = error.message
    if fault is not None:
        raise AgentError(
            f"{cause!r:.80} is no cause of a cancel: {fault}",
            code="INVALID_CAUSE",
            hint='say {"kind": "user"}, {"kind": "parent"} or {"kind": "hook", "reason": "why"}',
        )
    return end["reason"]["reason"]


def render_causes(error: object) -> str:
    """One line: the message, the members of a group in brackets, then the cause. Never raises, never empty.

    A cause that only repeats its wrapper's message is left out.
    """
    return _render(error, ())


def _render(error: object, seen: tuple[object, ...]) -> str:
    if any(error is other for other in seen):
        return "<circular cause>"
    try:
        message = str(error)
        if not isinstance(error, BaseException):
            return message or type(error).__name__
        if isinstance(error, BaseExceptionGroup):
            message = error.message
        message = message or type(error).__name__
        text = message
        seen = (*seen, error)
        if isinstance(error, BaseExceptionGroup):
            text += f" [{'; '.join(_render(member, seen) for member in error.exceptions)}]"
        if error.__cause__ is not None:
            cause = _render(error.__cause__, seen)
            if cause != message:
                text += f": {cause}"
        return text
    except Exception:
        return "<unrenderable value>"
