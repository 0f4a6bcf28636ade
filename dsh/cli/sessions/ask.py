"""What session commands ask before they delete, and how they tell what went wrong with one of many."""

import sys
from typing import Any

from dsh.cli.report import describe
from dsh.cli.stream import notice, write_all
from dsh.errors import DshError, UsageError
from dsh.persistence.backend import Backend, Listing
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


def told(error: Exception) -> None:
    """Say what went wrong with one session, with the hint there is; the next one is not affected."""
    notice(f"dsh: {describe(error)}")
    if isinstance(error, DshError) and error.hint:
        notice(f"hint: {error.hint}")
