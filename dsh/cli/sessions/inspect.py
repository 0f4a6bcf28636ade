"""`dsh sessions inspect`: what a log holds, in its repaired view. Loads neither the kernel nor an event loop.

Nothing is repaired in place.
"""

from dsh.cli.sessions.output import line, write
from dsh.cli.sessions.place import Place
from dsh.cli.sessions.reading import failed, tell_of_torn
from dsh.cli.sessions.target import find_log
from dsh.errors import CompositionError, DshError, UsageError
from dsh.persistence.view import LogView
from dsh.session.value import encode


def inspect(target: str, place: Place, *, as_json: bool) -> int:
    """Print one log: as one JSON object, or as a few lines for people. Answers the exit code.

    A log that cannot be opened is 1. What is left out at the end of a torn one is told on standard error.

    Raises:
        CompositionError, UsageError: of the place, not of the log.
    """
    try:
        log = find_log(target, place)
        view = log.view()
    except (CompositionError, UsageError):
        raise
    except (DshError, OSError) as error:
        return failed(error)
    tell_of_torn(log, view)
    write((encode(summary(view)) if as_json else describe(view, log.place).encode()) + b"\n")
    return 0


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


def describe(view: LogView, place: str) -> str:
    """A few lines for people."""
    header = view.header
    last = view.event(view.length - 1).type if view.length else "none"
    lines = [
        f"session   {line(header.id)}",
        f"log       {place}",
        f"cwd       {line(header.cwd or 'none')}",
        f"events    {view.length}, the last is {line(last)}",
        f"messages  {len(view.derive_messages())}",
        f"headers   {_requests(view)}",
    ]
    if view.needs_repair:
        lines.append(f"repair    closing events added when it is opened: {len(view.closers)}")
    return "\n".join(lines)


def _requests(view: LogView) -> str:
    """How many request headers the log holds, and where the last one goes."""
    if view.request_header is None:
        return "none was recorded"
    count = sum(1 for _ in view.select("request/header"))
    config = view.request_header["config"]
    return f"{count}, the last for {line(config['provider'])}/{line(config['model'])}"
