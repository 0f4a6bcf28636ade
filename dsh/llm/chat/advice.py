"""What to configure where a server refuses a request for a way in which servers differ (`Compat`)."""

import msgspec

from dsh.llm.chat.dialect import Dialect
from dsh.llm.failure import LlmError, LlmFailure

_WANTS_BACK = ("pass", "missing", "required", "must")


def advised(error: LlmError, route: str, dialect: Dialect) -> LlmError | None:
    """The refusal with the key that answers it; None where its words name nothing that a key governs."""
    key = _key(error.failure, dialect)
    if key is None:
        return None
    message = f"{error.failure.message.rstrip('. ')} (for route {route}, set {key})"
    made = LlmError(msgspec.structs.replace(error.failure, message=message), hint=error.hint)
    made.__cause__ = error
    return made


def _key(failure: LlmFailure, dialect: Dialect) -> str | None:
    if failure.code not in ("INVALID_REQUEST", "HTTP_422"):
        return None
    said = failure.message.lower()
    if "reasoning_effort" in said and "tools" in said:
        return "reasoningEffort: off, with compat.effortMap: {off: none}"
    if "max_completion_tokens" in said:
        is_new = dialect.max_tokens_field == "max_completion_tokens"
        return f"compat.maxTokensField: {'max_tokens' if is_new else 'max_completion_tokens'}"
    if "stream_options" in said and dialect.stream_options:
        return "compat.streamOptions: false"
    if "developer" in said and dialect.system_role == "developer":
        return "compat.systemRole: system"
    if "reasoning_content" in said:
        if not any(word in said for word in _WANTS_BACK):
            return "compat.reasoningReplay: none"
        if dialect.reasoning_replay != "reasoning_content":
            return "compat.reasoningReplay: reasoning_content"
        return None if dialect.foreign_reasoning else "compat.foreignReasoning: true"
    return None
