"""What can go wrong between a session and its stored log. Each kind has a `code` of its own.

PersistenceError                    exit 8: a log could not be made durable, or a request does not fit it
├── LogRefusal                      exit 1: a stored log that will not be opened
│   ├── SessionCorruption           CORRUPT_SESSION: committed data is invalid; nothing has been cut off
│   │   ├── NotASessionLog          NOT_A_SESSION_LOG: the file is something else
│   │   └── NotAFile                SESSION_LOG_NOT_A_FILE: a folder, a pipe or a device
│   └── SessionFormatUnsupported    healthy, but not for this program
│       ├── OtherVersion            SESSION_VERSION_UNSUPPORTED
│       └── UnknownType             SESSION_TYPE_UNKNOWN: a required event type that is not known here
├── SessionNotFound                 SESSION_NOT_FOUND, exit 1: no stored log under this id
├── SessionCollision                SESSION_ALREADY_EXISTS: the id belongs to another session
├── SessionNotDurable               the system refused a write; the events are still in memory:
│                                   SESSION_DISK_FULL, SESSION_QUOTA_EXCEEDED, SESSION_READ_ONLY or, for
│                                   anything else, SESSION_NOT_DURABLE
├── SessionBusy                     SESSION_BUSY: somebody else has the log open for writing
├── SessionLive                     SESSION_IS_LIVE: it is live in this process
├── RawLogUnsupported               RAW_LOG_UNSUPPORTED, exit 1: this storage keeps no text
├── PackingUnsupported              PACKING_UNSUPPORTED, exit 1: this storage has nothing to pack
├── WrongDatabase                   SESSION_WRONG_DATABASE, exit 1: a database that is not one of sessions
├── SessionFileChanged              SESSION_FILE_CHANGED: not what we last wrote; nothing is appended
├── SessionWritten                  SESSION_FILE_CHANGED: not what was to be deleted; it stays
├── DatabaseBusy                    SESSION_DATABASE_BUSY: locked by another program (dsh.persistence.sqlite)
├── UnsafePath                      SESSION_UNSAFE_PATH, exit 1: open to others (dsh.persistence.sqlite)
└── UncleanTail, UncleanCreation    what failed could not be taken back (dsh.persistence.jsonl.writer)

Storage errors (permission, I/O) are plain `OSError`s, but for whoever waits for a session to become durable:
there they are wrapped, so that the process ends with exit code 8.
"""

import errno

from dsh.session.error import SessionError


class PersistenceError(SessionError):
    """A log could not be made durable, or the operation does not fit what is stored."""

    exit_code = 8


class LogRefusal(PersistenceError):
    """A stored log that will not be opened. `where` is the path with line or byte offset."""

    exit_code = 1

    def __init__(
        self, reason: str, *, path: str, line: int = 0, offset: int | None = None, hint: str = ""
    ) -> None:
        """`hint` is better advice than the one that all refusals of this kind share."""
        self.reason = reason
        self.path = path
        self.line = line
        """1-based line of the decoded text, the header being line 1; 0 where no line is meant."""
        self.offset = offset
        """Byte offset in the file (in a zstd log: of the frame), or None."""
        super().__init__(f"{_place(path, line, offset)}: {reason}", code=self._code, hint=hint or self._hint)

    _code = ""
    _hint = ""


class SessionCorruption(LogRefusal):
    """Committed data is invalid. The file is left exactly as it is."""

    _code = "CORRUPT_SESSION"
    _hint = "nothing was changed; what is stored is still there to be read or repaired by hand"


class NotASessionLog(SessionCorruption):
    """The file does not begin as a session log does."""

    _code = "NOT_A_SESSION_LOG"
    _hint = "name a log that dsh has written, or a session id"


class NotAFile(SessionCorruption):
    """There is something where a log should be, but no regular file."""

    _code = "SESSION_LOG_NOT_A_FILE"
    _hint = "name the log itself: session.jsonl or session.jsonl.zstd in the session's folder"


class SessionFormatUnsupported(LogRefusal):
    """The log is not damaged, but this build cannot interpret it."""


class OtherVersion(SessionFormatUnsupported):
    """It has another format version."""

    _code = "SESSION_VERSION_UNSUPPORTED"
    _hint = "the text can still be read: dsh sessions show --raw"


class UnknownType(SessionFormatUnsupported):
    """It holds an event type that is not known here and may not be passed over."""

    _code = "SESSION_TYPE_UNKNOWN"
    _hint = "install the plugin or the newer dsh that wrote it"


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


class PackingUnsupported(PersistenceError):
    """A session was to be packed, and this kind of storage has nothing to pack."""

    exit_code = 1

    def __init__(self, where: str) -> None:
        super().__init__(
            f"{where}: sessions are not packed here",
            code="PACKING_UNSUPPORTED",
            hint="only logs that are files grow by a frame at each write",
        )


class SessionCollision(PersistenceError):
    """The id is already in use: by a stored log that this session does not continue, or by a live one."""

    def __init__(self, session_id: str, reason: str) -> None:
        self.session_id = session_id
        super().__init__(f"session {session_id!r}: {reason}", code="SESSION_ALREADY_EXISTS")


_REFUSALS = {
    errno.ENOSPC: ("SESSION_DISK_FULL", "make room on that disk"),
    errno.EDQUOT: ("SESSION_QUOTA_EXCEEDED", "delete files of yours there, or have the quota raised"),
    errno.EROFS: ("SESSION_READ_ONLY", "it lies on a file system that is read-only; keep sessions elsewhere"),
    errno.EACCES: ("SESSION_READ_ONLY", "make the folder writable, or keep sessions elsewhere"),
    errno.EPERM: ("SESSION_READ_ONLY", "make the folder writable, or keep sessions elsewhere"),
}


class SessionNotDurable(PersistenceError):
    """The system refused to store events of a session. A live one keeps them; a later flush tries again."""

    def __init__(self, session_id: str, path: str, cause: OSError) -> None:
        self.session_id = session_id
        self.path = path
        reason = cause.strerror or str(cause)
        if cause.filename is not None and cause.filename != path:
            reason = f"{cause.filename}: {reason}"
        code, advice = _REFUSALS.get(
            cause.errno or 0, ("SESSION_NOT_DURABLE", "make room, or make the folder writable")
        )
        super().__init__(
            f"session {session_id!r} could not be stored in {path}: {reason}",
            code=code,
            hint=f"{advice}; what was stored before is intact",
        )


class SessionBusy(PersistenceError):
    """Somebody else has the log open for writing."""

    def __init__(self, path: str, owner: str) -> None:
        self.path = path
        self.owner = owner
        """`process 4711 on host ci-3 since 2026-11-30 16:00:00 UTC`, or what little is known."""
        super().__init__(
            f"{path}: the session is open for writing by {owner}",
            code="SESSION_BUSY",
            hint="end that process or wait for it, then try again",
        )


class SessionLive(PersistenceError):
    """What was asked for is only possible while the session is not live."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"session {session_id!r} is live here",
            code="SESSION_IS_LIVE",
            hint="end it first, then try again",
        )


class WrongDatabase(PersistenceError):
    """The database file is none of sessions, or of another version. It is left as it is."""

    exit_code = 1

    def __init__(self, path: str, reason: str, *, hint: str = "") -> None:
        self.path = path
        super().__init__(
            f"{path}: {reason}",
            code="SESSION_WRONG_DATABASE",
            hint=hint or "name a database that dsh has written, or a path where there is none yet",
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


class SessionWritten(PersistenceError):
    """A session was to be deleted as it was seen, and somebody has written it since. It stays."""

    def __init__(self, place: str) -> None:
        super().__init__(
            f"{place}: the session was written meanwhile; it was not deleted",
            code="SESSION_FILE_CHANGED",
            hint="look at it again, and delete it if it should go all the same",
        )


def of_header(error: SessionError) -> str:
    """Why a header is refused, where the place says no more than the line."""
    return error.message if "header" in error.message else f"header: {error.message}"


def _place(path: str, line: int, offset: int | None) -> str:
    at = path + (f":{line}" if line else "")
    return at if offset is None else f"{at} (byte {offset})"
