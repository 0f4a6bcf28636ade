"""Every error dsh raises on purpose.

DshError
├── UsageError              exit 2: the command line is wrong
├── CompositionError        exit 3: profile, patch, row, expression or plugin; the user edits a file
├── CredentialError         exit 4: a key is missing or refused
├── OutputError             standard output cannot be written
├── KernelError             a plugin broke a rule of the kernel
├── SessionError            a log cannot be read or extended                   (dsh.session.error)
│   └── PersistenceError    exit 8: a log could not be made durable            (dsh.persistence.error)
├── LlmError                the model's side failed; 4 where a key is at fault (dsh.llm.failure)
├── ToolError               a tool could not do what it was asked              (dsh.tools.error)
├── FsError, SpawnError, SandboxUnavailable, ApprovalError, PresetError, CommandError,
│   UserQuestionError, HttpError, SessionQueryError, WebError                 (dsh.capabilities)
└── AgentError, PromptError, InvariantError                                    (dsh.agent.failure)

Where no exit code stands it is 1. What a tool raises, the model reads as a failed result.

A bug in dsh is a plain `AssertionError` or `RuntimeError` with its traceback; a `DshError` reaches
the user as its message and its hint, in one line each.
"""

PIPE_CLOSED = 141
"""What a command exits with that only prints, when nobody reads its output any more."""


class DshError(Exception):
    """Base class: `message` says where, what was found and what was expected; `hint` what to do next."""

    exit_code: int = 1
    """What the process exits with when this error ends it (`spec/front-ends.md` §11.4)."""

    def __init__(self, message: str, *, code: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        """Stable upper-case name where one is specified, else empty."""
        self.hint = hint
        self.is_told = False
        """It has been shown to the person: who meets it again on its way has nothing to add."""

    def __str__(self) -> str:
        return self.message


class UsageError(DshError):
    """The command line asks for something that does not exist or does not fit together."""

    exit_code = 2


class OutputError(DshError):
    """Standard output cannot be written."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"standard output cannot be written: {cause.strerror}")
        self.is_abandoned = isinstance(cause, BrokenPipeError)
        """Nobody reads it any more: no failure for what only prints, which then ends with `PIPE_CLOSED`."""


class CompositionError(DshError):
    """What the rows, patches, bundles or the profile say cannot be mounted."""

    exit_code = 3


class CredentialError(DshError):
    """A key is missing, malformed or refused by the provider."""

    exit_code = 4


class KernelError(DshError):
    """A plugin used the kernel in a way that it forbids, for instance an effect on a dead fiber."""
