"""Ends what plugins have started without the program's help: processes that would outlive the run.

What the program starts leads a group of its own and is known (`dsh.capabilities.process_group`). Anybody may
start a process, though; at the end, whoever descends from us is told to go, and then made to.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

GRACE_S = 1.0
"""How long they may take after SIGTERM."""


def descendants() -> dict[int, str]:
    """Our children and theirs that still run, with their names; none where the system does not tell."""
    found: dict[int, str] = {}
    waiting = [os.getpid()]
    while waiting:
        for listed in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            with contextlib.suppress(OSError, ValueError):
                for pid in map(int, listed.read_text().split()):
                    waiting.append(pid)
                    if (name := _name_of(pid)) is not None:
                        found[pid] = name
    return found


def _name_of(pid: int) -> str | None:
    """What the system calls a process; None for one that has ended."""
    with contextlib.suppress(OSError):
        head, _, rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
        if rest.split()[0] not in "ZX":
            return head.partition("(")[2]
    return None


def end_children() -> list[str]:
    """End them: SIGTERM, and SIGKILL for who does not go. Answers what was ended: `sleep (pid 17)`."""
    left = ended = descendants()
    _send(left, signal.SIGTERM)
    deadline_s = time.monotonic() + GRACE_S
    while left and time.monotonic() < deadline_s:
        time.sleep(0.005)
        left = {pid: name for pid, name in (left | descendants()).items() if _name_of(pid) == name}
    _send(left, signal.SIGKILL)
    return [f"{name} (pid {pid})" for pid, name in ended.items()]


def kill_children() -> None:
    """SIGKILL for all of them, at once."""
    _send(descendants(), signal.SIGKILL)


def _send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == pid:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)
