"""Ends what plugins have started without the program's help: processes that would outlive the run.

What the program starts leads a group of its own and is known (`dsh.capabilities.process_group`). Anybody may
start a process, though; at the end, whoever is still our child is told to go, and then made to.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

GRACE_S = 1.0
"""How long they may take after SIGTERM."""


def children() -> dict[int, str]:
    """Our own children that still run, with their names; none where the system does not tell."""
    found = {}
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError, ValueError):
            for pid in map(int, listed.read_text().split()):
                stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
                if stat.rpartition(")")[2].split()[0] not in "ZX":
                    found[pid] = stat.partition("(")[2].rpartition(")")[0]
    return found


def end_children() -> list[str]:
    """End them: SIGTERM, and SIGKILL for who does not go. Answers what was ended: `sleep (pid 17)`."""
    left = ended = children()
    _send(left, signal.SIGTERM)
    deadline_s = time.monotonic() + GRACE_S
    while left and time.monotonic() < deadline_s:
        time.sleep(0.005)
        left = {pid: name for pid, name in children().items() if pid in ended}
    _send(left, signal.SIGKILL)
    return [f"{name} (pid {pid})" for pid, name in ended.items()]


def kill_children() -> None:
    """SIGKILL for all of them, at once."""
    _send(children(), signal.SIGKILL)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)
