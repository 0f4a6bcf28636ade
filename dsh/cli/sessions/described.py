"""How stored sessions are told in a line each: short ids, sizes, titles, where they come from."""

from collections.abc import Iterable

from dsh.cli.sessions.output import common_length, line
from dsh.cli.sessions.target import ID_PREFIX
from dsh.persistence.backend import StoredSession
from dsh.persistence.projections import read_rows, sidecar_path, title_of

SHORTEST = 8
"""Characters of an id that are shown at least."""
_UNITS = ("kB", "MB", "GB", "TB", "PB")


def size_text(size: int) -> str:
    """A number of bytes in at most four digits."""
    if size < 1000:
        return f"{size} B"
    value, unit = size / 1000, 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{value:.1f} {_UNITS[unit]}" if value < 9.95 else f"{value:.0f} {_UNITS[unit]}"


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """For each id what is enough to name it among these: `session-` is left away where that is clear."""
    ordered = sorted(set(ids))
    shown: dict[str, str] = {}
    for n, session_id in enumerate(ordered):
        beside = ordered[n - 1 : n] + ordered[n + 1 : n + 2]
        length = max([common_length(session_id, other) for other in beside], default=0) + 1
        own = len(ID_PREFIX) if session_id.startswith(ID_PREFIX) else 0
        shown[session_id] = session_id[: max(length, own + SHORTEST)]
    for session_id, short in shown.items():
        bare = short.removeprefix(ID_PREFIX)
        if len(bare) >= SHORTEST and bare != short and not any(other.startswith(bare) for other in ordered):
            shown[session_id] = bare
    return shown


def parent_mark(stored: StoredSession, short: dict[str, str]) -> str:
    """`fork of 1a2b3c4d` or `child of …`; empty for a session without parent."""
    parent = stored.header.parent_session
    if parent is None:
        return ""
    kind = "child" if stored.header.origin == "subagent" else "fork"
    return f"{kind} of {line(short.get(parent, parent))}"


def cached_title(stored: StoredSession) -> str | None:
    """The title as the listing or the cache beside the log has it, if there is one for this very session.

    The log is not read for it, so that the title may be an older one.
    """
    if stored.path is None:
        return stored.title
    return title_of(read_rows(sidecar_path(stored.path), stored.header))
