"""What the system refuses while stored logs are looked at or changed, as an error with a code."""

import errno
import os

from dsh.persistence.backend import StoredProblem
from dsh.persistence.error import LogRefusal, NotAFile, PersistenceError, SessionNotDurable


class SystemRefusal(PersistenceError):
    """The system does not let something be read or changed. What is stored is as it was."""

    exit_code = 1

    def __init__(self, path: str, reason: str, *, code: str, hint: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}", code=code, hint=hint)


def named(error: OSError) -> PersistenceError:
    """The same refusal with its code and one next step."""
    path = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else "the storage"
    reason = error.strerror or str(error)
    match error.errno:
        case errno.ENOENT | errno.ENAMETOOLONG:
            if os.path.islink(path):  # noqa: PTH114 -- False for whatever cannot be looked at
                reason = "this link leads nowhere"
            elif error.errno == errno.ENAMETOOLONG:
                path = f"{path[:80]}…"
            return SystemRefusal(path, reason, code="SESSION_NOT_FOUND", hint=_SEE_ALL)
        case errno.EISDIR:
            return NotAFile("this is a folder, not a session log", path=path)
        case errno.ENOSPC | errno.EDQUOT | errno.EROFS:
            return _not_changed(error, path, reason)
        case errno.EACCES | errno.EPERM if _can_be_looked_at(path):
            return _not_changed(error, path, reason)
    return SystemRefusal(path, reason, code="SESSION_UNREADABLE", hint=_SEE_WHO)


def _can_be_looked_at(path: str) -> bool:
    """Whether it is there and can be read, or is seen to be absent: what was refused is then a change."""
    if os.path.lexists(path):
        return os.access(path, os.R_OK, effective_ids=True)
    return os.access(os.path.dirname(path) or ".", os.X_OK, effective_ids=True)  # noqa: PTH120 -- text


_SEE_ALL = "dsh sessions list --all shows the sessions that are stored"
_SEE_WHO = "see what lies there and who may read it: ls -ld"


def _not_changed(error: OSError, path: str, reason: str) -> SystemRefusal:
    alike = SessionNotDurable("", path, error)
    return SystemRefusal(path, reason, code=alike.code, hint=alike.hint)


def problem_of(place: str, error: PersistenceError | OSError) -> StoredProblem:
    """What keeps something from being listed, for a reader who is told its place beside it."""
    refusal = named(error) if isinstance(error, OSError) else error
    reason = refusal.reason if isinstance(refusal, LogRefusal | SystemRefusal) else refusal.message
    return StoredProblem(place, reason, refusal.code)
