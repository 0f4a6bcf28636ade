"""Forking a stored session: the child is an ordinary new one, stored at once with all that it inherits.

The parent is only read (`spec/session-log.md` §12).
"""

import contextlib
import uuid
from typing import Any

from dsh.persistence.backend import Backend
from dsh.persistence.error import PersistenceError, SessionCollision, SessionNotDurable, SessionNotFound
from dsh.persistence.view import build_view
from dsh.session.fork import ForkSeed
from dsh.session.header import SessionHeader
from dsh.session.log import Clock, now_ms


def new_session_id() -> str:
    """An id that no other session has."""
    return f"session-{uuid.uuid4()}"


def fork_stored(
    backend: Backend[Any],
    session_id: str,
    *,
    boundary: int | None = None,
    turn: int | None = None,
    child_id: str | None = None,
    clock: Clock = now_ms,
) -> SessionHeader:
    """Store a fork of a stored session, computed from its repaired view. Answers the child's header.

    Args:
        boundary: seq of the last inherited event.
        turn: number of the last inherited turn, instead. With neither, everything is inherited.
        child_id: without it a new one.

    Raises:
        SessionCollision: the child's id is taken.
        SessionNotFound: the parent is not stored.
        SessionForkError: see `LogView.fork`.
        LogRefusal: the parent cannot be opened.
        SessionNotDurable: the child could not be stored. Nothing of it is to be seen, unless what is stored
            could not be removed again either.
    """
    refuse_taken(backend, child_id)
    stored = backend.load(session_id)
    if stored is None:
        raise SessionNotFound(session_id)
    seed = build_view(stored).fork(boundary=boundary, turn=turn)
    return store_fork(backend, seed, child_id, clock=clock)


def refuse_taken(backend: Backend[Any], child_id: str | None) -> None:
    """Refuse an id under which something is stored.

    Raises:
        SessionCollision
    """
    if child_id is not None and backend.find(child_id) is not None:
        raise SessionCollision(child_id, "a session with this id is stored already")


def store_fork(
    backend: Backend[Any], seed: ForkSeed, child_id: str | None, *, clock: Clock = now_ms
) -> SessionHeader:
    """Store a session that begins with this seed, in one write. Raises as `fork_stored`."""
    child = seed.session(new_session_id() if child_id is None else child_id, clock=clock)
    try:
        backend.append(child.header, child.snapshot())
    except SessionCollision:
        raise
    except (OSError, PersistenceError) as error:
        backend.release(child.id)
        _take_back(backend, child.header)
        if isinstance(error, PersistenceError):
            raise
        place = backend.locate(child.header)
        raise SessionNotDurable(child.id, str(place or backend.name), error) from error
    finally:
        backend.release(child.id)
    return child.header


def _take_back(backend: Backend[Any], header: SessionHeader) -> None:
    """Remove what may be seen of a child whose write failed in its last sync, as far as that can be done."""
    with contextlib.suppress(OSError, PersistenceError):
        stored = backend.load(header.id)
        if stored is not None and stored.header == header:
            backend.delete(header.id, revision=stored.revision)
