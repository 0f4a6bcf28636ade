"""One line of the table, and the figures of benchmarks that measure within a process of their own."""

import subprocess
import sys
from typing import NamedTuple

from benchmarks.bench import REPOSITORY


class Row(NamedTuple):
    """One line of the table."""

    work: str
    promised: str
    ours: str
    original: str


def alone(module: str, *words: str) -> str:
    """What a benchmark that measures within its own process prints."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout


def named(printed: str) -> dict[str, float]:
    """Figures that were printed by name, one a line."""
    return {name: float(value) for name, value in map(str.split, printed.splitlines())}
