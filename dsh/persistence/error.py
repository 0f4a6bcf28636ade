"""What can go wrong between a session and its stored log.

PersistenceError                  exit 8: a log could not be made durable, or a request does not fit it
├── LogRefusal                    exit 1: a stored log that will not be opened
│   ├── SessionCorruption         committed data is invalid; nothing has been changed or cut off
│   └── SessionFormatUnsupported  healthy, but written by another format or with unknown event types
├── SessionNotFound               exit 1: no stored log under this id
├── SessionCollision              the id belongs to another session
├── SessionNotDurable             the system refused a write; the events are still in memory
├── SessionBusy                   another process (or another store here) has the log open for writing
├── RawLogUnsupported             exit 1: this storage keeps no text that could be handed out
├── SessionFileChanged            the file is not what we last wrote; nothing is appended
└── UncleanTail                   a failed append could not be taken back   (dsh.persistence.jsonl.writer)

Storage errors (permission, I/O) are plain `OSError`s, but for whoever waits for a live session to become
durable: there they are wrapped, so that the process ends with exit code 8.
"""

from dsh.session.error import SessionError


class PersistenceError(SessionError):
    """A log could not be made durable, or the operation does not fit what is stored."""

    exit_code = 8


class LogRefusal(PersistenceError):
    """A stored log that will not be opened. `where` is the path with line or byte offset."""

    exit_code = 1

    def __init__(self, reason: str, *, path: str, line: int = 0, offset: int | None = None) -> None:
        self.reason = reason
        self.path = path
        self.line = line
        """1-based line of the decoded text, the header being line 1; 0 where no line is meant."""
        self.offset = offset
        """Byte offset in the file (in a zstd log: of the frame), or None."""
        super().__init__(f"{_place(path, line, offset)}: {reason}", code=self._code, hint=self._hint)

    _code = ""
    _hint = ""


class SessionCorruption(LogRefusal):
    """Committed data is invalid. The file is left exactly as it is."""

    _code = "CORRUPT_SESSION"
    _hint = "the file was not changed; the raw text is still there to be read or repaired by hand"


class SessionFormatUnsupported(LogRefusal):
    """The log is not damaged, but this build cannot interpret it."""

    _code = "UNSUPPORTED_SESSION"


class SessionNotFound(PersistenceError):
    """No log is stored under this id."""

    exit_code = 1

    def __init__(self, session_id: str, *, where: str = "") -> None:
        self.session_id = session_id
        super().__init__(
            f"no stored session {session_id!r}" + (f" under {where}" if where else ""),
            code="SESSION_NOT_FOUND",
        )


class RawLogUnsupported(PersistenceError):
    """The stored text was asked for, and this kind of storage keeps none."""

    exit_code = 1

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where}: sessions are not kept as text here",
            code="RAW_LOG_UNSUPPORTED",
            hint="dsh sessions export writes the log as JSON lines",
        )


class SessionCollision(PersistenceError):
    """The id is already in use: by a stored log that this session does not continue, or by a live one."""

    def __init__(self, session_id: str, reason: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r}: {reason}", code="SESSION_ALREADY_EXISTS")


class SessionNotDurable(PersistenceError):
    """The system refused to store events of a live session. A later flush tries again."""

    def __init__(self, session_id: str, path: str, cause: OSError) -> None:
        self.session_id = session_id
        self.path = path
        reason = cause.strerror or str(cause)
        if cause.filename is not None and cause.filename != path:
            reason = f"{cause.filename}: {reason}"
        super().__init__(
            f"session {session_id!r} could not be stored in {path}: {reason}",
            code="SESSION_NOT_DURABLE",
            hint="make room, or make the folder writable; what was stored before is intact",
        )


class SessionBusy(PersistenceError):
    """Somebody else has the log open for writing."""

    def __init__(self, path: str, owner: str) -> None:
        self.path = path
        self.owner = owner
        """`process 4711 on host ci-3`, or what little is known."""
        super().__init__(
            f"{path}: the session is open for writing by {owner}",
            code="SESSION_BUSY",
            hint="end that process or wait for it, then try again",
        )


class SessionFileChanged(PersistenceError):
    """The stored file is gone, replaced, or not as long as what we wrote. It is never overwritten."""

    def __init__(self, path: str, found: str) -> None:
        self.path = path
        super().__init__(
            f"{path}: {found} since this process last wrote it; nothing was appended",
            code="SESSION_FILE_CHANGED",
            hint="another program changed the log; keep a copy and start a new session",
        )


def _place(path: str, line: int, offset: int | None) -> str:
    at = path + (f":{line}" if line else "")
    return at if offset is None else f"{at} (byte {offset})"
