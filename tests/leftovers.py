"""Finds processes that a run of the tests has started and not ended, by a mark in their environment."""

import os
import time
from pathlib import Path

MARK = "TESTED_BY_RUN"
"""Not one of the `DSH_*` names: those never reach a child of ours."""
PATIENCE_S = 10.0
"""A kill takes effect a moment after it was sent."""


def marked(value: str) -> dict[int, str]:
    """The command lines of the running processes that hold the mark, without us and those above us."""
    wanted = f"{MARK}={value}".encode()
    spared = _line_of_descent()
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        pid = int(folder.name)
        if pid in spared:
            continue
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            variables = (folder / "environ").read_bytes().split(b"\0")
            command = (
                (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            )
        except OSError:
            continue
        if state not in "ZX" and wanted in variables:
            found[pid] = command
    return found


def left_over(value: str, patience_s: float = PATIENCE_S) -> dict[int, str]:
    """What is still there after a moment."""
    end = time.monotonic() + patience_s
    while (found := marked(value)) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def _line_of_descent() -> set[int]:
    pids, pid = set(), os.getpid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            break
    return pids
