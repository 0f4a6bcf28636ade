"""How old sessions are, in milliseconds and in words. Order and age go by the last write."""

import re
from datetime import datetime

from dsh.errors import UsageError
from dsh.persistence.backend import StoredSession

_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_AGE = re.compile(r"([0-9]{1,15})([mhdw])\Z")


def age_ms(text: str) -> int:
    """An age as it is typed (`90m`, `12h`, `30d`, `2w`) in milliseconds.

    Raises:
        UsageError: it is none.
    """
    found = _AGE.match(text)
    if found is None:
        raise UsageError(
            f"--older-than {text!r}: an age is a whole number with m, h, d or w behind it",
            hint="minutes, hours, days or weeks: 90m, 12h, 30d, 2w",
        )
    return int(found[1]) * _MS[found[2]]


def written_ms(stored: StoredSession) -> int:
    """When a session was last written, as far as its listing says: else when it was created."""
    return stored.header.created_at if stored.modified_ms is None else stored.modified_ms


def newest_first(stored: StoredSession) -> tuple[int, int, str]:
    """The key to sort sessions by."""
    return -written_ms(stored), -stored.header.created_at, stored.header.id


def ago(then_ms: int, now_ms: int) -> str:
    """An age in few characters; what lies in the future is `now`."""
    seconds = max(0, now_ms - then_ms) // 1000
    for size, unit in ((604_800 * 9, ""), (86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= size:
            return date(then_ms)[:10] if not unit else f"{seconds // size}{unit} ago"
    return "now"


def date(then_ms: int) -> str:
    """A time in the local zone to the second, with its offset; what no calendar holds as a number."""
    try:
        return datetime.fromtimestamp(then_ms / 1000).astimezone().isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{then_ms} ms"
