"""`dsh sessions …`: looking at stored sessions. Loads neither the kernel nor an event loop.

TARGET is a path to a log (plain or compressed), an id, or the beginning of one. Nothing is repaired in
place; what is shown is the repaired view.
"""

import os
import sys
from pathlib import Path

from dsh.cli.report import describe as in_words
from dsh.cli.stream import notice
from dsh.composition.home import home_path
from dsh.errors import DshError
from dsh.persistence.error import PersistenceError
from dsh.persistence.lookup import logs_by_prefix
from dsh.persistence.reader import read_log
from dsh.persistence.view import LogView, build_view
from dsh.session.value import encode

AMBIGUOUS_SHOWN = 5
"""So many candidates are named when an id prefix fits several sessions."""


def inspect(target: str, json_output: bool) -> int:
    """Print one log: as one JSON object, or as a few lines for people. Answers the exit code.

    A log that cannot be opened is 1, with one line on standard error. What is left out at the end of a torn
    one is told there too.
    """
    try:
        path = find_log(target, home_path() / "sessions")
        view = build_view(read_log(path))
    except (DshError, OSError) as error:
        notice(f"dsh: {in_words(error)}")
        return 1
    if (torn := view.torn) is not None:
        read = f"{torn.recovered or 'no'} events could be read"
        notice(f"dsh: {path}: {torn.reason}; of {torn.dropped} bytes from byte {torn.keep} on {read}")
    out = encode(summary(view)) if json_output else describe(view, path).encode("utf-8", "backslashreplace")
    sys.stdout.buffer.write(out + b"\n")
    sys.stdout.buffer.flush()
    return 0


def find_log(target: str, root: Path) -> Path:
    """The log that a TARGET names.

    Raises:
        PersistenceError: nothing fits, or more than one session does.
    """
    path = Path(target)
    if os.sep in target or path.is_file():
        return path
    found = logs_by_prefix(root, target) if target else []
    if len(found) == 1:
        return found[0]
    if not found:
        raise PersistenceError(
            f"no log {target!r}: not a file, and no session id under {root} begins so",
            code="SESSION_NOT_FOUND",
        )
    names = ", ".join(path.parent.name for path in found[:AMBIGUOUS_SHOWN])
    more = ", …" if len(found) > AMBIGUOUS_SHOWN else ""
    raise PersistenceError(f"{target!r} fits {len(found)} stored sessions: {names}{more}")


def summary(view: LogView) -> dict[str, object]:
    """The object that `--json` prints. `lastType` and `last` are absent where there is no event."""
    out: dict[str, object] = {"events": view.length}
    if view.length:
        last = view.event(view.length - 1)
        out["lastType"] = last.type
        out["last"] = last.to_json()
    out["header"] = view.header.to_json()
    out["messages"] = view.derive_messages()
    out["surface"] = view.surface_nodes
    out["requestHeader"] = view.request_header
    return out


def describe(view: LogView, path: Path) -> str:
    """A few lines for people."""
    header = view.header
    last = view.event(view.length - 1).type if view.length else "none"
    lines = [
        f"session   {_shown(header.id)}",
        f"log       {path}",
        f"cwd       {_shown(header.cwd or 'none')}",
        f"events    {view.length}, the last is {_shown(last)}",
        f"messages  {len(view.derive_messages())}",
    ]
    if view.needs_repair:
        lines.append(f"repair    closing events added when it is opened: {len(view.closers)}")
    return "\n".join(lines)


def _shown(text: str) -> str:
    """Text of a log on one line of a terminal."""
    return text if text.isprintable() else ascii(text)
