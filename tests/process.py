"""Looking at processes from outside: whether one still runs, and waiting for its end."""

import time
from pathlib import Path


def is_running(pid: int) -> bool:
    """Whether there is such a process and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def is_gone(pid: int, bound_s: float = 30) -> bool:
    """Whether the process ends within the bound: a kill takes effect a moment after it was sent."""
    deadline = time.monotonic() + bound_s
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
