"""Opens the log of a TARGET for a command that draws it; what is wrong with a log goes to standard error."""

import shlex
from typing import NamedTuple

from dsh.cli.report import tell
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.target import Log, find_log
from dsh.cli.stream import notice
from dsh.errors import CompositionError, DshError, UsageError
from dsh.persistence.error import LogRefusal, NotAFile, NotASessionLog
from dsh.persistence.system import named
from dsh.persistence.view import LogView


class Opened(NamedTuple):
    """A log that is read."""

    log: Log
    view: LogView
    """Repaired."""
    is_running: bool
    """A process is about to write what the view says to be missing."""


def opened(target: str, place: Place) -> Opened | None:
    """The log of a target; None after the reason was told.

    Raises:
        CompositionError, UsageError: of the place, not of the log.
    """
    try:
        log = find_log(target, place)
        view = log.view()
    except (CompositionError, UsageError):
        raise
    except (NotASessionLog, NotAFile) as refusal:
        failed(refusal)
        return None
    except LogRefusal as refusal:
        failed(refusal, hint=f"dsh sessions show --raw {shlex.quote(target)} prints the stored text")
        return None
    except (DshError, OSError) as error:
        failed(error)
        return None
    tell_of_torn(log, view)
    writer = log.writer() if view.closers else None
    if writer is not None:
        notice(f"dsh: {log.place}: {writer} goes on with the session; this is what is stored so far")
    elif count := len(view.closers):
        cut_off = "was cut off" if log.path is not None else "was cut off or is still open"
        notice(f"dsh: {log.place}: the session {cut_off}; closing events that are not stored: {count}")
    return Opened(log, view, writer is not None)


def tell_of_torn(log: Log, view: LogView) -> None:
    """Say what the view leaves out at the end of the log, if it is torn."""
    if (torn := view.torn) is not None:
        read = f"{torn.recovered or 'no'} events could be read"
        notice(f"dsh: {log.place}: {torn.reason}; of {torn.extent} {read}")


def failed(error: DshError | OSError, *, hint: str = "") -> int:
    """Say what went wrong with one session: code, reason and hint. Answers the exit code.

    Args:
        hint: instead of the error's own.
    """
    tell(named(error) if isinstance(error, OSError) else error, hint=hint)
    return 1
