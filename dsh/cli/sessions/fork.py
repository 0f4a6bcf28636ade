"""`dsh sessions fork`: a new stored session that begins with the log of another one, whole or up to a turn.

The parent is only read. The fork is stored in one write, so that a crash leaves it whole or not at all.
"""

import contextlib
from typing import Any

from dsh.cli.sessions.output import line, write
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.reading import failed
from dsh.cli.sessions.target import find_stored
from dsh.cli.sessions.whereabouts import open_place
from dsh.cli.stream import notice
from dsh.errors import DshError
from dsh.persistence.backend import Backend
from dsh.persistence.fork import new_session_id, store_fork
from dsh.persistence.projections import sidecar_path, write_rows
from dsh.persistence.view import LogView
from dsh.session.fork import ForkSeed
from dsh.session.header import SessionHeader
from dsh.session.projection.fold import checkpoint
from dsh.session.projection.title import TITLE
from dsh.session.projection.unit import fold


def fork(target: str, place: Place, *, at: int) -> int:
    """Store the fork and print its id alone on standard output; answers the exit code.

    Args:
        at: the last turn that it takes over; 0 for the whole log, closed as repair would close it.

    Raises:
        UsageError, CompositionError: there is no such place.
    """
    backend = open_place(place)
    try:
        log = find_stored(target, backend)
        view = log.view()
        seed = view.fork(turn=at or None)
        if seed.seed_length == view.length:
            _tell_of_the_end(view, log.place)
        child = store_fork(backend, seed, new_session_id())
        _keep_title(seed, child, backend)
    except (DshError, OSError) as error:
        return failed(error)
    finally:
        backend.close()
    write(f"{child.id}\n")
    return 0


def _keep_title(seed: ForkSeed, child: SessionHeader, backend: Backend[Any]) -> None:
    """Put the title that the fork inherits where a list finds it; without that it is merely not shown."""
    log = backend.locate(child)
    if log is not None and (title := fold(TITLE, seed.entries)) is not None:
        with contextlib.suppress(OSError):
            write_rows(sidecar_path(log), child, {TITLE.key: checkpoint(TITLE, title, seed.seed_length - 1)})


def _tell_of_the_end(view: LogView, place: str) -> None:
    """Say what the end of the fork has more, or less, than the log has stored."""
    if view.torn is not None:
        notice(f"dsh: {line(place)}: {line(view.torn.reason)}; the fork does without it")
    if view.closers:
        notice(f"dsh: {line(view.header.id)} was cut off or is still open: the fork closes its last turn")
