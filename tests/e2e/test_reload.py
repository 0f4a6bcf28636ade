"""A process that stays: its patch files are edited, and its rows follow."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsh.testing.workspace import Workspace, finish

APP = """
inject = ["appExit"]
def apply(ctx, config):
    print_line(f"app {config}")
"""
ROW = """
import os
def apply(ctx, config):
    say(f"up {config}")
    return lambda: say("down")
"""
SAY = """
import os
def say(text):
    with open(os.environ["TRACE"], "a") as trace:
        trace.write(text + "\\n")
"""
PATIENCE_S = 30.0


class Alive:
    """A running dsh with an app that does nothing and a row that writes down when it starts and ends."""

    def __init__(self, space: Workspace, process: "subprocess.Popen[bytes]", trace: Path) -> None:
        self.space, self.process, self.trace = space, process, trace
        self.patch = space.home / "dsh.patch.yml"

    def lines(self) -> list[str]:
        return self.trace.read_text().splitlines() if self.trace.exists() else []

    def await_lines(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        """Wait until the trace is as wanted; a run that is too slow fails the test."""
        end = time.monotonic() + PATIENCE_S
        while not wanted(self.lines()):
            assert self.process.poll() is None, finish(self.process).stderr
            assert time.monotonic() < end, self.lines()
            time.sleep(0.05)
        return self.lines()

    def end(self) -> list[str]:
        """Stop it; the lines it has said on standard error."""
        self.process.send_signal(signal.SIGTERM)
        done = finish(self.process)
        assert (done.code, done.stdout) == (143, "")
        return done.errors


def write(path: Path, text: str) -> None:
    """Replace a file in one step, as editors do."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(path.name + ".new")
    made.write_text(text)
    os.replace(made, path)


@pytest.fixture
def alive(tmp_path: Path) -> Iterator[Alive]:
    space = Workspace(tmp_path)
    folder = space.home / "profiles/stay"
    write(folder / "profile.yml", "bundles: []\n")
    write(folder / "app.py", SAY + "inject = ['appExit']\ndef apply(ctx): say('app')\n")
    write(folder / "row.py", SAY + ROW)
    write(
        folder / "dsh.patch.yml",
        "- insert:\n    - {id: app, name: ./app.py}\n    - {id: row, name: ./row.py, config: {n: 0}}\n",
    )
    trace = tmp_path / "trace"
    process = space.start("--profile", "stay", env={"TRACE": str(trace)})
    try:
        running = Alive(space, process, trace)
        running.await_lines(lambda lines: len(lines) == 2)
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_an_edit_of_a_file_that_was_not_there_restarts_the_row_it_changes_and_no_other(alive: Alive) -> None:
    write(alive.patch, "- {id: row, config: {n: 1}}\n")
    lines = alive.await_lines(lambda lines: lines[-1] == "up {'n': 1}")
    assert sorted(lines[:2]) == ["app", "up {'n': 0}"]
    assert lines[2:] == ["down", "up {'n': 1}"]
    assert alive.end() == [f"dsh: {alive.patch}: applied; changed rows: row"]
