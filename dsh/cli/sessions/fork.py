"""`dsh sessions fork`: a new stored session that begins with the log of another one, whole or up to a turn.

The parent is only read. The fork is stored in one write, so that a crash leaves it whole or not at all.
"""

import uuid

from dsh.cli.sessions.ask import told
from dsh.cli.sessions.output import line, write
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.target import ID_PREFIX, find_stored, open_place
from dsh.cli.stream import notice
from dsh.errors import DshError
from dsh.persistence.view import LogView
from dsh.session.fork import ForkSeed, boundary_of_turn, fork_of
from dsh.session.log import Session


def fork(target: str, place: Place, *, at: int) -> int:
    """Store the fork and print its id alone on standard output; answers the exit code.

    Args:
        at: the last turn that it takes over; 0 for the whole log, closed as repair would close it.

    Raises:
        UsageError, CompositionError: the place cannot be opened.
    """
    backend = open_place(place)
    try:
        log = find_stored(target, backend)
        view = log.view()
        if view.closers and not at:
            notice(f"dsh: {line(view.header.id)} was cut off or is still open: the fork closes its last turn")
        child = _seed(view, at).session(f"{ID_PREFIX}{uuid.uuid4()}")
        try:
            backend.append(child.header, child.entries())
        finally:
            backend.release(child.id)
    except (DshError, OSError) as error:
        told(error)
        return 1
    finally:
        backend.close()
    write(f"{child.id}\n")
    return 0


def _seed(view: LogView, turn: int) -> ForkSeed:
    """What the fork begins with. Raises as `fork_of` and `boundary_of_turn`."""
    if turn:
        session = view.to_session()
        return fork_of(session, boundary_of_turn(session, turn))
    if not view.length:
        return fork_of(Session(view.header))
    return fork_of(view.to_session(), view.length - 1)
