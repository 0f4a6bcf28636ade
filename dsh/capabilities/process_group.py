"""Process groups we started and have not seen end, and how to end them from anywhere.

Each child leads its own session and group. The set is module-wide because the last resort runs outside
every context: the watchdog thread calls `kill_all` right before it ends the process.
"""

import contextlib
import os
import signal
from pathlib import Path

_live: set[int] = set()


def track(pgid: int) -> None:
    """Remember a group until `forget`."""
    _live.add(pgid)


def forget(pgid: int) -> None:
    """The group was seen gone; its number may be used again by others."""
    _live.discard(pgid)


def tracked() -> frozenset[int]:
    """The groups that may still have members."""
    return frozenset(_live)


def signal_group(pgid: int, number: signal.Signals) -> None:
    """Send a signal to every member; a group that is gone is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, number)


def is_alive(pgid: int) -> bool:
    """Whether the group has a member that is not a zombie."""
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    states = _member_states(pgid)
    return states is None or any(state not in "ZX" for state in states)


def _member_states(pgid: int) -> list[str] | None:
    """State letters of the group's members from /proc, or None where there is no /proc."""
    states: list[str] = []
    try:
        entries = [entry for entry in os.listdir("/proc") if entry.isdigit()]  # noqa: PTH208
    except FileNotFoundError:
        return None
    for entry in entries:
        try:
            stat = Path("/proc", entry, "stat").read_bytes()
        except OSError:
            continue
        fields = stat.rpartition(b")")[2].split()
        if int(fields[2]) == pgid:
            states.append(fields[0].decode())
    return states


def kill_all() -> None:
    """SIGKILL whatever is left. Safe from any thread and at any time."""
    for pgid in tuple(_live):
        signal_group(pgid, signal.SIGKILL)
