"""Failures of tools: what the model sees as `Error: <message>`, and which of them carry a code.

Any `DshError` with a code marks its result with `{name: <class name>, code}`; everything else that a
tool raises is a plain failure without a code (`spec/tools.md` §3).
"""

from collections.abc import Sequence

from dsh.errors import DshError


class ToolError(DshError):
    """A tool could not do what it was asked. The message goes to the model."""


class ToolNotFoundError(ToolError):
    """The caller sees no tool of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f'unknown tool "{name:.200}"', code="UNKNOWN_TOOL")


class ToolArgsError(ToolError):
    """The arguments do not fit the tool's parameters."""

    SHOWN = 20
    """Violations listed in the message; the rest is counted."""

    def __init__(self, violations: Sequence[str]) -> None:
        shown = list(violations[: self.SHOWN])
        if rest := len(violations) - len(shown):
            shown.append(f"and {rest} more")
        super().__init__(f"invalid arguments: {'; '.join(shown)}", code="INVALID_ARGS")
        self.violations = tuple(violations)


class ToolOutputError(ToolError):
    """A tool's value, its rendering or its metadata break the output contract."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="INVALID_TOOL_OUTPUT")


class AbortError(ToolError):
    """The call was cancelled, before or after its body began."""

    def __init__(self, *, started: bool) -> None:
        if started:
            super().__init__("tool call aborted", code="ABORTED")
        else:
            super().__init__("tool call aborted before dispatch", code="ABORTED_BEFORE_DISPATCH")


class ToolTimeoutError(ToolError):
    """The call ran past its deadline."""

    def __init__(self, timeout_ms: float) -> None:
        super().__init__(f"tool call timed out after {timeout_ms:g}ms", code="TOOL_TIMEOUT")


class JsonSchemaError(ToolError):
    """A schema uses what our subset does not have, or contradicts itself. Raised where it is registered."""

    def __init__(self, violations: Sequence[str], *, where: str = "schema") -> None:
        super().__init__(f"{where}: {'; '.join(violations)}", code="UNSUPPORTED_SCHEMA")
        self.violations = tuple(violations)


class ToolRegistrationError(ToolError):
    """A definition, restriction or guard that the registry refuses; `code` says why."""
