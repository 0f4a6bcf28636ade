"""For commands about several sessions: one that cannot be found or listed is told and stops no other."""

from collections.abc import Sequence
from typing import Any

from dsh.cli.sessions.reading import failed
from dsh.cli.sessions.target import Log, find_stored
from dsh.cli.stream import notice
from dsh.errors import DshError
from dsh.persistence.backend import Backend, Listing
from dsh.session.error import SessionError


def named(targets: Sequence[str], backend: Backend[Any]) -> tuple[dict[str, Log], int]:
    """The sessions that are meant, by their ids, and the exit code: 1 if one was not found."""
    found: dict[str, Log] = {}
    code = 0
    for target in targets:
        try:
            log = find_stored(target, backend)
        except (DshError, OSError) as error:
            code = failed(error)
            continue
        assert log.session_id is not None
        found[log.session_id] = log
    return found, code


def listed(backend: Backend[Any]) -> Listing | None:
    """The headers of all that is stored; None, and told, where the place itself cannot be read."""
    try:
        return backend.list()
    except (SessionError, OSError) as error:
        failed(error)
        return None


def told_problems(listing: Listing) -> None:
    """Say what could not be listed, a line each."""
    for problem in listing.problems:
        notice(f"dsh: {problem.code}: {problem.place}: {problem.reason}")
