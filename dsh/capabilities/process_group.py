"""Process groups we started and have not seen end, and how to end them from anywhere.

Each child leads its own session and group. The set is module-wide because the last resort runs outside
every context: at the interpreter's exit, and in the watchdog thread right before it ends the process.
"""

import atexit
import os
import signal
from collections.abc import Callable
from pathlib import Path

_live: set["ProcessGroup"] = set()


class ProcessGroup:
    """The group that one child leads. Its number is ours until the group was seen gone, then others' again.

    The owner sets `leader_reaped` as soon as it has waited for the leader. From then on a process with the
    leader's number is a stranger, since the system does not give a number away while it names a group.
    """

    def __init__(self, leader: int, *, proc: str = "/proc") -> None:
        """`proc` is where the system shows its processes; it may be missing."""
        self.pgid = leader
        self._proc = proc
        self.leader_reaped = False
        self.gone = False
        """Seen without a living member: never signalled again."""
        _live.add(self)

    def exists(self) -> bool:
        """Whether the group has a member, zombies included. Cheap."""
        if self.gone:
            return False
        if (self.leader_reaped and _answers(os.kill, self.pgid)) or not _answers(os.killpg, self.pgid):
            self._seen_gone()
            return False
        return True

    def is_alive(self) -> bool:
        """Whether the group has a member that is not a zombie. Looks through /proc while it has any."""
        if not self.exists():
            return False
        members = _members(self._proc, self.pgid)
        if not members or any(state not in "ZX" for state in members.values()):
            return True
        if _members(self._proc, self.pgid) != members:
            return True  # one that forks while we look may escape the eye, but not the zombie it leaves
        self._seen_gone()
        return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every member. A group that is gone, or is not ours to signal, is no error."""
        if self.exists():
            try:
                os.killpg(self.pgid, number)
            except (ProcessLookupError, PermissionError):
                return

    def _seen_gone(self) -> None:
        self.gone = True
        _live.discard(self)


def live() -> tuple[ProcessGroup, ...]:
    """The groups that may still have members."""
    return tuple(_live)


def kill_all() -> None:
    """SIGKILL whatever is left. Safe from any thread and at any time."""
    for group in live():
        group.signal(signal.SIGKILL)


atexit.register(kill_all)


def _answers(send: Callable[[int, int], None], number: int) -> bool:
    try:
        send(number, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _members(proc: str, pgid: int) -> dict[str, str] | None:
    """The members' state letters by process id; None where `proc` does not show even ourselves."""
    try:
        entries = [entry for entry in os.listdir(proc) if entry.isdigit()]  # noqa: PTH208
    except OSError:
        return None
    if str(os.getpid()) not in entries:
        return None
    states: dict[str, str] = {}
    for entry in entries:
        try:
            stat = Path(proc, entry, "stat").read_bytes()
        except OSError:
            continue
        fields = stat.rpartition(b")")[2].split()
        if int(fields[2]) == pgid:
            states[entry] = fields[0].decode()
    return states
