"""Failures of a server, in words for a person or the model."""

from dsh.errors import DshError
from dsh.kernel.foreign import text_of
from dsh.plugins.mcp_client.sieve import shown
from dsh.tools.error import ToolError

REASON_CHARS = 1_000


class McpError(ToolError):
    """The server refused, broke the protocol, or is not there."""


class Gone(McpError):
    """The server went away while something was asked of it."""


class Stuck(McpError):
    """The server would not end: no second one is started beside it."""


def reason_of(error: BaseException) -> str:
    """The innermost cause, in one line."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, TimeoutError) and not str(error):
        return "it did not answer in time"
    text = shown(text_of(error), REASON_CHARS)
    return text if isinstance(error, DshError) and text else f"{type(error).__name__}: {text}".rstrip(": ")
