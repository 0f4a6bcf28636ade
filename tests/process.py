"""Looking at processes from outside: whether one still runs, waiting for its end or for what it does."""

import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PATIENCE_S = 60.0
"""How long a test waits for what surely comes: far longer than it takes, on a busy machine too."""


def is_running(pid: int) -> bool:
    """Whether there is such a process and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def members_of(group: int) -> list[int]:
    """The processes of a process group that still run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            state, _, its_group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state not in "ZX":
                found.append(int(folder.name))
    return found


def wait_until(is_so: Callable[[], object], process: "subprocess.Popen[bytes] | None" = None) -> None:
    """Wait for something that a process brings about; fail the test if it takes too long or ends before."""
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        if process is not None and process.poll() is not None:
            said = process.communicate()[1]
            raise AssertionError(f"the process ended with {process.returncode}: {said!r}")
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def is_gone(pid: int, bound_s: float = PATIENCE_S) -> bool:
    """Whether the process ends within the bound: a kill takes effect a moment after it was sent."""
    deadline = time.monotonic() + bound_s
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
