"""What session commands ask before they delete, and how they tell what went wrong with one of many."""

import sys
from typing import Any

from dsh.cli.report import tell
from dsh.cli.stream import notice, write_all
from dsh.errors import DshError, UsageError
from dsh.persistence.backend import Backend, Listing
from dsh.persistence.system import named
from dsh.session.error import SessionError


def confirmed(question: str, *, yes: bool) -> bool:
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


def listed(backend: Backend[Any]) -> Listing | None:
    """The headers of all that is stored; None, and told, where the place itself cannot be read."""
    try:
        return backend.list()
    except (SessionError, OSError) as error:
        told(error)
        return None


def told_problems(listing: Listing) -> None:
    """Say what could not be listed, a line each."""
    for problem in listing.problems:
        notice(f"dsh: {problem.code}: {problem.place}: {problem.reason}")


def told(error: DshError | OSError, *, hint: str = "") -> None:
    """Say what went wrong with one session: code, reason and hint; the next one is not affected.

    Args:
        hint: instead of the error's own.
    """
    tell(named(error) if isinstance(error, OSError) else error, hint=hint)
