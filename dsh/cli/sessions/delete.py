"""`dsh sessions delete` and `prune`: show what goes, ask, and delete one session after the other.

A session that somebody has open is never touched, and one that cannot be deleted stops no other.
"""

import contextlib
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from dsh.cli.sessions.described import cached_title, size_text
from dsh.cli.sessions.output import line, write
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.reading import failed
from dsh.cli.sessions.recency import age_ms, ago, written_ms
from dsh.cli.sessions.scope import Scope
from dsh.cli.sessions.several import listed, named, told_problems
from dsh.cli.sessions.target import Log
from dsh.cli.sessions.whereabouts import open_place
from dsh.cli.stream import notice, write_all
from dsh.errors import DshError, UsageError
from dsh.masking import masked
from dsh.persistence.backend import Backend, StoredSession

FINE, FAILED = 0, 1


class Doomed(NamedTuple):
    """A session that is to be deleted."""

    session_id: str
    about: str
    """What is shown of it before the question."""
    revision: str | None = None
    """What it has to be still when its turn comes; None for whatever it is then."""


def delete(targets: Sequence[str], place: Place, *, yes: bool) -> int:
    """Delete the sessions that are named; answers the exit code: 1 if any of them is still there.

    Raises:
        UsageError: there is nobody to ask, and no `yes`.
        CompositionError: where sessions are can only be guessed.
    """
    backend = open_place(place, is_certain=True)
    about = {} if yes else _all_about(backend)
    found, code = named(targets, backend)
    doomed = [Doomed(name, about.get(name) or _place_of(log)) for name, log in found.items()]
    return max(code, _delete(doomed, backend, yes=yes))


def prune(older_than: str, place: Place, scope: Scope, *, dry_run: bool, yes: bool) -> int:
    """Delete the sessions in a scope whose last write is so long ago.

    Answers the exit code: 1 if one of them could not be deleted. What cannot be listed is told and stays.

    Raises:
        UsageError: no age, or there is nobody to ask, and no `yes`.
        CompositionError: where sessions are can only be guessed.
    """
    now = time.time_ns() // 1_000_000
    before = now - age_ms(older_than)
    backend = open_place(place, is_certain=True)
    listing = listed(backend)
    if listing is None:
        return FAILED
    told_problems(listing)
    old = [
        Doomed(one.header.id, _about(one, now), one.revision)
        for one in scope.chosen(listing)
        if one.modified_ms is not None and one.modified_ms < before
    ]
    if not old:
        notice(f"no session is older than {older_than}")
    if dry_run:
        write("".join(f"would be deleted: {one.about}\n" for one in old))
        return FINE
    code = _delete(old, backend, yes=yes)
    if code == FINE and (count := backend.sweep(before)):
        notice(f"removed what {count} killed {'process' if count == 1 else 'processes'} left unfinished")
    return code


def _place_of(log: Log) -> str:
    """A session as it is told without reading it, since it may be broken."""
    said = [log.session_id or "", log.place]
    with contextlib.suppress(OSError):
        if log.path is not None:
            said.insert(1, size_text(log.path.stat().st_size))
    return "  ".join(map(line, said))


def _all_about(backend: Backend[Any]) -> dict[str, str]:
    """What is shown of the sessions that can be listed, by their ids."""
    now = time.time_ns() // 1_000_000
    listing = listed(backend)
    return {} if listing is None else {one.header.id: _about(one, now) for one in listing.sessions}


def _about(stored: StoredSession, now: int) -> str:
    said = [
        stored.header.id,
        ago(written_ms(stored), now),
        size_text(stored.size),
        stored.header.cwd or "no directory",
    ]
    if title := cached_title(stored):
        said.append(masked(title))
    return "  ".join(map(line, said))


def _delete(doomed: list[Doomed], backend: Backend[Any], *, yes: bool) -> int:
    if not doomed:
        return FINE
    if not yes:
        for one in doomed:
            notice(f"to be deleted: {one.about}")
    number = "this session" if len(doomed) == 1 else f"these {len(doomed)} sessions"
    if not _confirmed(f"Delete {number} for good?", yes=yes):
        notice("nothing was deleted")
        return FAILED
    code = FINE
    for one in doomed:
        try:
            deleted = backend.delete(one.session_id, revision=one.revision)
        except (DshError, OSError) as error:
            code = failed(error)
            continue
        if deleted:
            write(f"deleted: {one.about}\n")
    return code


def _confirmed(question: str, *, yes: bool) -> bool:
    """Whether the person agrees to what was shown before: at a terminal, where the default is no.

    Args:
        yes: agreed already, by `--yes`.

    Raises:
        UsageError: there is nobody to ask.
    """
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise UsageError(
            "nothing was deleted: there is no terminal to ask at", hint="--yes deletes without asking"
        )
    write_all(2, f"{question} [y/N] ".encode())
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        write_all(2, b"\n")
    return answer.strip().lower() in ("y", "yes")
