"""Process groups we started and have not seen end, and how to end them from anywhere.

Each child leads its own session and group. The set is module-wide because the last resort runs outside
every context: at the interpreter's exit, and in the watchdog thread right before it ends the process. Should
the process be killed, the guard does it (`dsh.capabilities.guard`).
"""

import atexit
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from dsh.capabilities import guard


class SeenProcess(NamedTuple):
    """A process as /proc shows it."""

    pid: str
    state: str
    group: int
    session: int
    start: int
    """When it was started, in the system's ticks."""


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
        if (seen := _seen(proc, str(leader))) is not None and seen.session == leader:
            guard.watch(leader, [(seen.pid, seen.start)])

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
        members = self._members()
        if not members or any(member.state not in "ZX" for member in members):
            self._is_left_to(members or [])
            return True
        if self._members() != members:
            return True  # one that forks while we look may escape the eye, but not the zombie it leaves
        self._seen_gone()
        return False

    def _members(self) -> list[SeenProcess] | None:
        """The processes of the group; None where the system does not show them."""
        seen = _look(self._proc)
        return None if seen is None else [one for one in seen if one.group == self.pgid]

    def _is_left_to(self, members: list[SeenProcess]) -> None:
        """Without its leader it is known by those who live on."""
        if self.leader_reaped:
            guard.watch(self.pgid, [(one.pid, one.start) for one in members if one.session == self.pgid])

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
        if all(other.pgid != self.pgid for other in live()):  # the number may be a newer group's of ours
            guard.forget(self.pgid)


class ProcessSession(ProcessGroup):
    """All groups of the session that one child leads: a shell with a terminal makes one for each job."""

    def exists(self) -> bool:
        if self.gone or (self.leader_reaped and _answers(os.kill, self.pgid)):
            return super().exists()
        seen = self.members()
        if seen is None:
            return super().exists()
        if not seen:
            self._seen_gone()
        return bool(seen)

    def is_alive(self) -> bool:
        if not self.exists():
            return False
        seen = self.members()
        if seen is None or any(one.state not in "ZX" for one in seen) or self.members() != seen:
            self._is_left_to(seen or [])
            return True
        self._seen_gone()
        return False

    def members(self) -> list[SeenProcess] | None:
        """The processes of the session; None where the system does not show them."""
        seen = _look(self._proc)
        return None if seen is None else [one for one in seen if one.session == self.pgid]

    def signal(self, number: signal.Signals) -> None:
        if not self.exists():
            return
        for group in {self.pgid, *(one.group for one in self.members() or ())}:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)


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


def _look(proc: str) -> list[SeenProcess] | None:
    """All processes; None where `proc` does not show even ourselves."""
    try:
        entries = [entry for entry in os.listdir(proc) if entry.isdigit()]  # noqa: PTH208
    except OSError:
        return None
    if str(os.getpid()) not in entries:
        return None
    return [one for entry in entries if (one := _seen(proc, entry)) is not None]


def _seen(proc: str, pid: str) -> SeenProcess | None:
    try:
        stat = Path(proc, pid, "stat").read_bytes()
    except OSError:
        return None
    fields = stat.rpartition(b")")[2].split()
    return SeenProcess(pid, fields[0].decode(), int(fields[2]), int(fields[3]), int(fields[19]))
