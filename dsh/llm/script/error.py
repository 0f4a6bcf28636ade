"""What goes wrong with a script: when it is read, and when it does not fit what is asked of it.

None of the codes is one that is retried: a second try would meet the same script.
"""

from dsh.llm.failure import LlmError, LlmFailure

EXHAUSTED = "SCRIPT_EXHAUSTED"
"""More calls were made than the script holds, or a call of another kind than the next one."""
UNCONSUMED = "SCRIPT_UNCONSUMED"
"""Fewer calls were made than the script holds."""
UNRECORDED_SESSION = "SCRIPT_UNRECORDED_SESSION"
"""More sessions called the model than were recorded."""
PLACEHOLDER = "SCRIPT_PLACEHOLDER"
"""A placeholder is malformed, or the request holds nothing that it matches."""
UNEXPECTED_REQUEST = "SCRIPT_UNEXPECTED_REQUEST"
"""A request is not what the script expects."""
UNFINISHED_CALL = "SCRIPT_UNFINISHED_CALL"
"""A recorded reply has no end, so that nobody can say what the model did."""
INVALID = "SCRIPT_INVALID"
"""A recording or an override is not what it must be."""


class ScriptError(LlmError):
    """A scripted model cannot do what is asked of it."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(LlmFailure(message, code), hint=hint)
