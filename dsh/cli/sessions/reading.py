"""Opens the log of a TARGET for a command that draws it; what is wrong with a log goes to standard error."""

import shlex
from typing import NamedTuple

from dsh.cli.report import tell
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.target import Log, find_log
from dsh.cli.stream import notice
from dsh.errors import CompositionError, DshError, UsageError
from dsh.persistence.error import LogRefusal, NotAFile, NotASessionLog, UnknownType
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
    log = None
    try:
        log = find_log(target, place)
        view = log.view()
    except (CompositionError, UsageError):
        raise
    except (NotASessionLog, NotAFile) as refusal:
        failed(refusal)
        return None
    except LogRefusal as refusal:
        failed(refusal, hint=_way_on(refusal, target, log))
        return None
    except (DshError, OSError) as error:
        failed(error)
        return None
    tell_of_torn(log, view)
    writer = log.writer() if view.closers else None
    if writer is not None:
        notice(f"dsh: {log.place}: {writer} goes on with the session; this is what is stored so far")
    elif count := len(view.closers):
        notice(f"dsh: {log.place}: the session was cut off; closing events that are not stored: {count}")
    return Opened(log, view, writer is not None)


def _way_on(refusal: LogRefusal, target: str, log: Log | None) -> str:
    """What to do about a log that is refused; empty where the refusal itself says all there is to do."""
    if log is None or log.path is None:  # a database keeps no text
        return ""
    raw = f"dsh sessions show --raw {shlex.quote(target)} prints the stored text"
    return f"{refusal.hint}; {raw}" if isinstance(refusal, UnknownType) else raw


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
