"""The options that both rows of hooks have."""

from typing import Literal

import msgspec

from dsh.capabilities.bounds import Amount, NonEmpty, TimerMs

OnFailure = Literal["pass", "deny"]


class HookConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the rows `hooks-claude-code` and `hooks-codex`."""

    config_path: NonEmpty
    """The hook file, read when the row is mounted; absolute, `~/…`, or below the working directory."""
    default_timeout_ms: TimerMs = 600_000
    """How long a hook may run whose file says nothing. The cap of the shell row holds as well."""
    on_failure: OnFailure = "pass"
    """What becomes of a hook that fails (cannot be started, times out, ends with a code that is neither 0 nor
    2, prints no valid answer) and has no `onFailure` of its own: `pass` goes on without it, `deny` counts as
    its objection. With `deny` a file that cannot be read ends the start.
    """
    concurrent: bool = True
    """Whether the hooks of one event run side by side; else one after the other, as the file has them."""
    stderr_summary_max_chars: Amount = 500
    """How much of a hook's standard error the log keeps."""
    session_start_wait_ms: TimerMs = 30_000
    """How long the first step waits for the hooks of the session's start. What they add after that reaches a
    later step.
    """
    max_stop_continuations: Amount = 8
    """How often in a row `Stop` hooks may keep one turn going."""
    max_context_chars: Amount = 20_000
    """How much of what one hook adds to the context the model gets to read."""
