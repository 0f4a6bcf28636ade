"""Opens the log of a TARGET for a command that draws it; what is wrong with it goes to standard error."""

import shlex

from dsh.cli.sessions.ask import told
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.target import Log, find_log
from dsh.cli.stream import notice
from dsh.errors import CompositionError, DshError, UsageError
from dsh.persistence.error import LogRefusal, NotAFile, NotASessionLog
from dsh.persistence.view import LogView


def opened(target: str, place: Place) -> tuple[Log, LogView] | None:
    """The log and its repaired view; None after the reason was told.

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
    if (torn := view.torn) is not None:
        read = f"{torn.recovered or 'no'} events could be read"
        notice(f"dsh: {log.place}: {torn.reason}; of {torn.extent} {read}")
    if count := len(view.closers):
        notice(f"dsh: {log.place}: the session was cut off; closing events that are not stored: {count}")
    return log, view


def failed(error: DshError | OSError, *, hint: str = "") -> int:
    """Tell an error as `told` does; answers the exit code."""
    told(error, hint=hint)
    return 1
