"""A real job is shown and exported, also one that was killed in the middle of a call."""

import json
import os
import signal
from pathlib import Path

from dsh.testing.workspace import Workspace
from tests.process import wait_until


def test_a_job_is_shown_and_exported(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    assert space.run("--profile", "demo", "Run: echo one; echo two").code == 0

    shown = space.run("sessions", "show", "last")
    raw = space.run("sessions", "show", "last", "--raw")
    lines = space.run("sessions", "export", "last")
    text = space.run("sessions", "export", "last", "-f", "markdown")
    page = space.run("sessions", "export", "last", "-f", "html")

    done = (shown, raw, lines, text, page)
    assert [(one.code, one.stderr) for one in done] == [(0, "")] * 5
    assert "user\n  Run: echo one; echo two\n" in shown.stdout
    assert "    command: echo one; echo two\n" in shown.stdout
    assert "    │ one\n    │ two\n" in shown.stdout
    assert "turn 1: completed · 2 steps" in shown.stdout
    assert raw.stdout == lines.stdout
    assert json.loads(lines.stdout.splitlines()[1])["seq"] == 0
    assert "```text\ncommand: echo one; echo two\n" in text.stdout
    assert page.stdout.endswith("</html>\n")


def test_a_job_that_runs_and_then_is_killed_is_shown_as_far_as_it_came(tmp_path: Path) -> None:
    space = Workspace(tmp_path)
    process = space.start("--profile", "demo", "Run: touch began; sleep 30")
    wait_until((space.work / "began").exists, process)

    running = space.run("sessions", "show", "last")
    text = space.run("sessions", "export", "last", "-o", "running.md")

    stats = space.run("sessions", "stats", "last")

    assert running.code == text.code == stats.code == 0
    assert "turn 1: no end in " in stats.stdout
    assert f"process {process.pid} on host " in running.stderr
    assert running.stderr.endswith("goes on with the session; this is what is stored so far\n")
    assert "▸ bash no result\n" in running.stdout
    assert "interrupted" not in running.stdout + (space.work / "running.md").read_text()

    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)

    shown = space.run("sessions", "show", "last")

    assert shown.code == 0
    assert "▸ bash failed (TOOL_OUTCOME_UNKNOWN) · result made up when the session was opened" in shown.stdout
    assert "turn 1: interrupted" in shown.stdout
    assert "the session was cut off; closing events that are not stored: " in shown.stderr
