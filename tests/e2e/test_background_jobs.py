"""Background jobs in whole runs: what the model learns of them, how the end of a run ends them (SA-01)."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.workspace import Workspace, finish, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import failure, text
from tests.process import is_gone, wait_until

Answering = Callable[..., Model]
FULL = {"DSH_PERMISSION_MODE": "danger-full-access"}


def call(name: str, call_id: str = "c", **arguments: Any) -> dict[str, Any]:
    return {"tools": [{"id": call_id, "name": name, "args": [json.dumps(arguments)]}]}


def background(command: str, call_id: str = "c") -> dict[str, Any]:
    return call("bash", call_id, command=command, run_in_background=True)


def rows_of(space: Workspace, kind: str) -> list[Any]:
    [log] = space.logs()
    return [row["data"] for row in log_rows(log) if row.get("type") == kind]


def seen(space: Workspace) -> list[str]:
    """The texts of the results, in order."""
    blocks = [row["message"]["content"][0] for row in rows_of(space, "tool/result")]
    return ["".join(part["text"] for part in block["content"]) for block in blocks]


def notices(space: Workspace) -> list[dict[str, Any]]:
    return [row for row in rows_of(space, "user/message") if row["source"].get("plugin") == "tool-jobs"]


def pid_in(path: Path) -> int:
    return int(path.read_text())


@pytest.mark.parametrize("mode", ["workspace-write", "danger-full-access"])
def test_a_job_that_ends_soon_wakes_the_agent_before_the_run_is_over(
    space: Workspace, answering: Answering, mode: str
) -> None:
    model = answering(
        background("sleep 0.5; echo built; exit 3"),
        text("waiting"),
        call("job_output", "o", job_id="bash-1"),
        text("it said built"),
    )
    done = space.run("run", "build", env={"DSH_PERMISSION_MODE": mode})

    assert (done.code, done.stdout, done.stderr) == (0, "it said built\n", "")
    assert seen(space) == ["started background job bash-1", "built\n[status: completed, exit code: 3]"]
    [notice] = notices(space)
    assert notice["source"] == {
        "kind": "plugin",
        "plugin": "tool-jobs",
        "form": "notice",
        "summary": "bash sleep 0.5; echo built; exit 3 [status: completed, exit code: 3]",
    }
    assert "bash-1" in notice["content"][0]["text"]
    assert "job_output" in notice["content"][0]["text"]
    assert len(model.bodies()) == 4
    assert rows_of(space, "run/dropped") == []


@pytest.mark.parametrize("mode", ["workspace-write", "danger-full-access"])
def test_a_job_outlives_its_call_and_is_waited_for(space: Workspace, answering: Answering, mode: str) -> None:
    answering(
        background("echo begun; sleep 0.3; echo done >&2; exit 3"),
        call("job_output", "o", job_id="bash-1", wait=True),
        call("job_list", "l"),
        text("ok"),
    )
    done = space.run("run", "go", env={"DSH_PERMISSION_MODE": mode})

    assert (done.code, done.stdout, done.stderr) == (0, "ok\n", "")
    started, output, listed = seen(space)
    assert started == "started background job bash-1"
    assert output.split("\n") == ["begun", "[stderr]", "done", "[status: completed, exit code: 3]"]
    assert listed.startswith("bash-1 [bash] completed — echo begun")


def test_a_job_that_goes_on_is_ended_and_told_and_the_run_succeeds(
    space: Workspace, answering: Answering
) -> None:
    answering(background("echo $$ > pid; exec sleep 300"), text("done"))
    done = space.run("run", "x", env=FULL)

    assert (done.code, done.stdout) == (0, "done\n")
    assert done.stderr == (
        "dsh: 1 background job still ran and was ended: bash-1 (echo $$ > pid; exec sleep 300)\n"
    )
    assert rows_of(space, "run/dropped") == [
        {"kind": "bash", "id": "bash-1", "label": "echo $$ > pid; exec sleep 300"}
    ]
    assert notices(space) == []
    assert is_gone(pid_in(space.work / "pid"), 5)
    shown = space.run("sessions", "verify", "last")
    assert (shown.code, shown.stderr) == (0, "")


def test_a_job_that_the_model_ends_is_neither_told_nor_dropped(
    space: Workspace, answering: Answering
) -> None:
    answering(
        background("sleep 300"),
        call("job_kill", "k", job_id="bash-1", reason="enough"),
        call("job_output", "o", job_id="bash-1", wait=True),
        call("job_kill", "k2", job_id="bash-1"),
        call("job_list", "l"),
        text("done"),
    )
    done = space.run("run", "x", env=FULL)

    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    started, asked, output, again, listed = seen(space)
    assert started == "started background job bash-1"
    assert asked == "job bash-1 is asked to end; job_output shows when it is over"
    assert output == "(no new output)\n[status: killed, signal: SIGTERM]"
    assert again == "job bash-1 was over already: killed"
    assert listed == "bash-1 [bash] killed — sleep 300"
    assert notices(space) == []


def test_a_signal_ends_the_jobs_and_says_so(space: Workspace, answering: Answering) -> None:
    answering(background("echo $$ > pid; exec sleep 300"), call("bash", "s", command="sleep 300"))
    process = space.start("run", "x", env=FULL)
    wait_until(lambda: (space.work / "pid").exists() and (space.work / "pid").read_text().strip())
    process.send_signal(signal.SIGTERM)
    done = finish(process)

    assert done.code == 143
    assert "1 background job still ran and was ended: bash-1" in done.stderr
    assert [row["id"] for row in rows_of(space, "run/dropped")] == ["bash-1"]
    assert is_gone(pid_in(space.work / "pid"), 5)


def test_a_turn_that_failed_waits_for_no_job(space: Workspace, answering: Answering) -> None:
    answering(background("sleep 300"), failure(400, "no"))
    done = space.run("run", "x", env=FULL)

    assert done.code == 1
    assert done.errors[0] == "dsh: 1 background job still ran and was ended: bash-1 (sleep 300)"


def test_each_job_that_goes_on_is_told_and_logged_whatever_it_is_called(
    space: Workspace, answering: Answering
) -> None:
    """The first has ended; one does not heed the signal; under bubblewrap all the same."""
    answering(
        background("true", "c1"),
        background("trap '' TERM; while :; do sleep 0.2; done", "c2"),
        background("sleep 300 # \x1b[31m" + "é" * 1000, "c3"),
        text("ok"),
    )
    done = space.run("run", "x")

    assert (done.code, done.stdout) == (0, "ok\n")
    [line] = done.errors
    assert line.startswith("dsh: 2 background jobs still ran and were ended: bash-2 (trap '' TERM; ")
    assert "\x1b" not in line
    assert "bash-3 (sleep 300 # " in line
    assert len(line) < 250
    assert [row["id"] for row in rows_of(space, "run/dropped")] == ["bash-2", "bash-3"]
    assert all(len(row["label"]) <= 500 for row in rows_of(space, "run/dropped"))


def test_a_killed_run_takes_its_jobs_along(space: Workspace, answering: Answering) -> None:
    answering(background("echo $$ > pid; exec sleep 300"), call("bash", "s", command="sleep 300"))
    process = space.start("run", "x", env=FULL)
    wait_until(lambda: (space.work / "pid").exists() and (space.work / "pid").read_text().strip())
    os.kill(process.pid, signal.SIGKILL)
    finish(process)

    assert is_gone(pid_in(space.work / "pid"), 5)


def test_a_job_keeps_the_secrets_from_its_environment(space: Workspace, answering: Answering) -> None:
    """SE-01, in the background."""
    secrets = {"GH_TOKEN": "ghs-1", "DB_PASSWORD": "dbs-2", "MY_SECRET": "mys-3"}
    answering(background("env | sort"), call("job_output", "o", job_id="bash-1", wait=True), text("done"))
    done = space.run("run", "x", env={**secrets, "DSH_SESSION_ID": "stale", "HARMLESS": "seen"})

    assert done.code == 0
    output = seen(space)[1]
    assert "HARMLESS=seen" in output
    assert "stale" not in output
    assert "TMPDIR=" in output
    for value in (*secrets.values(), "mock-key"):
        assert value not in output


def test_a_replay_of_a_run_with_jobs_starts_none(space: Workspace, answering: Answering) -> None:
    answering(
        background("echo once >> ran; sleep 0.3"),
        text("waiting"),
        call("job_output", "o", job_id="bash-1"),
        text("all done"),
    )
    assert space.run("run", "x", env=FULL).code == 0
    replayed = space.run("replay", "last")

    assert (replayed.code, replayed.stderr) == (0, ""), replayed
    assert (space.work / "ran").read_text() == "once\n"
