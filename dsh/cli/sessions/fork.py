"""`dsh sessions fork`: a new stored session that begins with the log of another one, whole or up to a turn.

The parent is only read. The fork is stored in one write, so that a crash leaves it whole or not at all.
"""

from dsh.cli.sessions.ask import told
from dsh.cli.sessions.output import line, write
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.target import find_stored, open_place
from dsh.cli.stream import notice
from dsh.errors import DshError
from dsh.persistence.fork import new_session_id, store_fork


def fork(target: str, place: Place, *, at: int) -> int:
    """Store the fork and print its id alone on standard output; answers the exit code.

    Args:
        at: the last turn that it takes over; 0 for the whole log, closed as repair would close it.

    Raises:
        UsageError, CompositionError: the place cannot be opened.
    """
    backend = open_place(place)
    try:
        view = find_stored(target, backend).view()
        seed = view.fork(turn=at or None)
        if view.closers and seed.seed_length > view.stored_length:
            cut = line(view.header.id)
            notice(f"dsh: {cut} was cut off or is still open: the fork closes its last turn")
        child = store_fork(backend, seed, new_session_id())
    except (DshError, OSError) as error:
        told(error)
        return 1
    finally:
        backend.close()
    write(f"{child.id}\n")
    return 0
