"""What can be wrong with a log, a candidate event or a stored header.

SessionError
├── JsonError            text that is not strict JSON, or a value that is not lossless JSON
│   └── TooDeep          JSON that is nested deeper than a log may be
├── InvalidHeader        a session header that breaks a rule of its field
├── InvalidEvent         an event that may not be in the log: envelope, payload shape, type, turn and step
│   └── SurfaceError     an event that breaks a rule of the surface; `rule` is its number in the specification
├── CorruptLog           a stored log that breaks its own rules; `index` is the entry at fault
├── UnsupportedLog       a log of another version, or with an event type this program does not know
├── ReentrantAppend      an append from inside the publication of another one
├── SessionExists        the id is taken in the store
├── SessionNotLive       the session is not registered in this store
└── SessionForkError     a session cannot be forked there; `code` says why
"""

from dsh.errors import DshError


class SessionError(DshError):
    """Base class: a log cannot be read or extended."""


class JsonError(SessionError, ValueError):
    """Text that is not strict JSON, or a value that JSON cannot hold without loss."""


class TooDeep(JsonError):
    """JSON that is nested deeper than a log may be, and perhaps deeper than it can be read."""


class InvalidHeader(SessionError):
    """A header field breaks its rule; `field` names it, empty for the record as a whole."""

    def __init__(self, message: str, *, field: str = "", hint: str = "") -> None:
        self.field = field
        super().__init__(message, hint=hint)


class InvalidEvent(SessionError):
    """An event that may not stand in the log where it is."""


class SurfaceError(InvalidEvent):
    """An event that breaks rule number `rule` of the surface (`spec/session-log.md` §7)."""

    def __init__(self, rule: int, message: str) -> None:
        self.rule = rule
        super().__init__(message)


class CorruptLog(SessionError):
    """A stored log breaks its own rules. `index` counts stored entries (a packed row is one) from 0."""

    def __init__(self, message: str, *, index: int | None = None, hint: str = "") -> None:
        self.index = index
        super().__init__(message, hint=hint)


class UnsupportedLog(SessionError):
    """Not damage: the log was written by a program that knows more, or other, than this one."""

    def __init__(self, message: str, *, index: int | None = None, hint: str = "") -> None:
        self.index = index
        super().__init__(message, hint=hint)


class ReentrantAppend(SessionError):
    """An observer of an append tried to append to the same session at once."""


class SessionExists(SessionError):
    """Another live session has this id."""


class SessionNotLive(SessionError):
    """The session is not registered in this store, or belongs to another one."""


class SessionForkError(SessionError):
    """A session cannot be forked as asked: `code` is one of `dsh.session.fork.ForkCode`."""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, code=code, hint=hint)
