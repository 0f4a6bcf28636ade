"""A program under measurement: whole runs against replies that a streaming server has ready."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import Figures, measure

REPOSITORY = Path(__file__).resolve().parent.parent
CHUNKS = 50_000
FEW_RUNS = 3
"""Of what takes long."""
ROUTES = {"deepseek": "deepseek-official", "openai": "openai-compatible", "anthropic": "anthropic"}
"""The route that speaks each wire format."""


class Bench:
    """A program under measurement, its throw-away home and the server it talks to."""

    def __init__(self, program: list[str], root: Path, address: str, runs: int) -> None:
        self.program, self.runs = program, runs
        self.work, home = root / "work", root / "home"
        self.work.mkdir(parents=True)
        home.mkdir()
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "DSH_HOME": str(home),
            "DSH_PERMISSION_MODE": "danger-full-access",
            "DEEPSEEK_BASE_URL": f"{address}/v1",
            "OPENAI_BASE_URL": f"{address}/openai/v1",
            "ANTHROPIC_BASE_URL": address,
            **{f"{name.upper()}_API_KEY": "benchmark" for name in ROUTES},
        }

    def quick(self, *words: str) -> Figures:
        return measure([*self.program, *words], cwd=self.work, env=self.env, runs=self.runs * 2)

    def job(self, model: str, *, wire: str = "deepseek", runs: int | None = None) -> Figures:
        """One headless run against the reply that `model` names (`benchmarks.stream_server`)."""
        patch = self.work / f"{wire}-{model}.yml"
        patch.write_text(
            "- id: session-title-llm\n  disabled: true\n"
            f"- id: agent-default-model\n  config: {{provider: {ROUTES[wire]}, model: {model}}}\n"
        )
        argv = [*self.program, "--profile", "headless", "--patch", str(patch), "go"]
        return measure(argv, cwd=self.work, env=self.env, runs=runs or self.runs)


class Stream(NamedTuple):
    """What one streamed chunk costs beyond a one-chunk reply, and how ten times as many compare."""

    cpu_us: float
    kept_kib: float
    growth: float
    """CPU of ten times the chunks against that of the chunks."""
    long_kept_kib: float
    """Kept for each of ten times the chunks."""

    def each(self) -> str:
        return f"{self.cpu_us:.1f} µs CPU, {self.kept_kib:.2f} KiB kept"


def stream(bench: Bench, wire: str = "deepseek") -> Stream:
    """The cost of a chunk of text."""
    one, some = bench.job("text-1", wire=wire), bench.job(f"text-{CHUNKS}", wire=wire)
    many = bench.job(f"text-{CHUNKS * 10}", wire=wire, runs=FEW_RUNS)
    return Stream(
        *_each(some, one, CHUNKS - 1),
        growth=(many.cpu_s - one.cpu_s) / (some.cpu_s - one.cpu_s),
        long_kept_kib=_each(many, one, CHUNKS * 10 - 1)[1],
    )


def arguments(bench: Bench, wire: str) -> str:
    """The cost of one fragment of a tool call's arguments."""
    one, some = (
        bench.job("arguments-1", wire=wire, runs=FEW_RUNS),
        bench.job(f"arguments-{CHUNKS}", wire=wire, runs=FEW_RUNS),
    )
    cpu_us, kept_kib = _each(some, one, CHUNKS - 1)
    return f"{cpu_us:.1f} µs CPU, {kept_kib:.2f} KiB kept"


def _each(many: Figures, few: Figures, count: int) -> tuple[float, float]:
    """CPU in microseconds and memory in KiB of each that the one run has more than the other."""
    return (many.cpu_s - few.cpu_s) / count * 1e6, (many.peak_mib - few.peak_mib) * 1024 / count


@contextmanager
def server(root: Path) -> Iterator[str]:
    """The address of a running `benchmarks.stream_server`."""
    ready = root / "ready"
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.stream_server", str(ready)], cwd=REPOSITORY)
    try:
        end = time.monotonic() + 60
        while not (ready.exists() and ready.read_text()):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the streaming server did not start")
            time.sleep(0.02)
        yield ready.read_text()
    finally:
        process.kill()
        process.wait()
