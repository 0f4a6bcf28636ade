"""Runs a command several times and tells what the operating system says it used."""

import os
import platform
import resource
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple


class Figures(NamedTuple):
    """Medians over several runs of one command, the first run not counted."""

    wall_s: float
    cpu_s: float
    """User and system time of the process and the children it waited for."""
    peak_mib: float
    """Largest resident set of a single process."""
    runs: int


def measure(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str], runs: int, expect: int = 0) -> Figures:
    """Run the command once to warm up, then `runs` times.

    Raises:
        RuntimeError: a run did not exit with `expect`.
    """
    walls, cpus, peaks = [], [], []
    for counted in range(-1, runs):
        begin = time.perf_counter()
        process = subprocess.Popen(
            list(argv), cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != expect:
            raise RuntimeError(f"{' '.join(argv)}: exit {process.returncode}, expected {expect}")
        if counted >= 0:
            walls.append(wall)
            cpus.append(usage.ru_utime + usage.ru_stime)
            peaks.append(usage.ru_maxrss / 1024)
    median = statistics.median
    return Figures(median(walls), median(cpus), median(peaks), runs)


def kept_kib() -> float:
    """Resident memory of this process now, in KiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1024


def machine() -> str:
    """The machine in one line: processor, cores, system, Python."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2] for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0].strip() if names else model
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}"
    )
