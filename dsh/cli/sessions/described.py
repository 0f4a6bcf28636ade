"""How stored sessions are told in a line each: short ids, sizes, titles, where they come from."""

import json
from collections.abc import Iterable
from typing import Any

from dsh.cli.sessions.output import line
from dsh.cli.sessions.target import ID_PREFIX
from dsh.persistence.backend import StoredSession

CACHE_NAME = "projections.json"
"""The file beside a log that holds what was folded from it; can be deleted at any time."""
CACHE_LIMIT = 4_000_000
"""A longer one is not read for a title."""
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
        length = max([_common(session_id, other) for other in beside], default=0) + 1
        own = len(ID_PREFIX) if session_id.startswith(ID_PREFIX) else 0
        shown[session_id] = session_id[: max(length, own + SHORTEST)]
    for session_id, short in shown.items():
        bare = short.removeprefix(ID_PREFIX)
        if len(bare) >= SHORTEST and bare != short and not any(other.startswith(bare) for other in ordered):
            shown[session_id] = bare
    return shown


def _common(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    length = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        length += 1
    return length


def parent_mark(stored: StoredSession, short: dict[str, str]) -> str:
    """`fork of 1a2b3c4d` or `child of …`; empty for a session without parent."""
    parent = stored.header.parent_session
    if parent is None:
        return ""
    kind = "child" if stored.header.origin == "subagent" else "fork"
    return f"{kind} of {line(short.get(parent, parent))}"


def cached_title(stored: StoredSession) -> str | None:
    """The title as the cache beside the log has it, if there is one for this very session.

    The log is not read for it, so that the title may be an older one.
    """
    if stored.path is None:
        return None
    try:
        with stored.path.with_name(CACHE_NAME).open("rb") as file:
            data = file.read(CACHE_LIMIT + 1)
        cache: Any = json.loads(data) if len(data) <= CACHE_LIMIT else None
        identity, title = cache["identity"], cache["rows"]["title"]["val"]
        is_its = (identity["createdAt"], identity.get("cwd")) == (stored.header.created_at, stored.header.cwd)
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
    return title if is_its and isinstance(title, str) else None
