"""Background jobs in whole runs: their tools, their notices, and what happens to them at the end."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import Reply, text
from tests.process import is_gone

Answering = Callable[..., Model]
MODES = ["danger-full-access", "workspace-write"]


def call(name: str, **arguments: Any) -> Reply:
    return {"tools": [{"id": f"call_{name}", "name": name, "args": [json.dumps(arguments)]}]}


def start(command: str) -> Reply:
    return call("bash", command=command, description="in the background", run_in_background=True)


def results(model: Model) -> list[str]:
    return [message["content"] for message in model.bodies()[-1]["messages"] if message["role"] == "tool"]


def rows(space: Workspace, kind: str) -> list[dict[str, Any]]:
    [log] = space.logs()
    return [row["data"] for row in log_rows(log) if row["type"] == kind]


@pytest.mark.parametrize("mode", MODES)
def test_a_job_outlives_its_call_and_is_waited_for(space: Workspace, answering: Answering, mode: str) -> None:
    model = answering(
        start("echo begun; sleep 0.3; echo done >&2; exit 3"),
        call("job_output", job_id="bash-1", wait=True),
        call("job_list"),
        text("ok"),
    )

    done = space.run("run", "go", env={"DSH_PERMISSION_MODE": mode})

    assert (done.code, done.stdout, done.stderr) == (0, "ok\n", "")
    started, output, listed = results(model)
    assert started == "started background job bash-1"
    assert output.split("\n") == ["begun", "[stderr]", "done", "[status: completed, exit code: 3]"]
    assert listed.startswith("bash-1 [bash] completed — echo begun")


def test_the_end_of_a_job_wakes_an_agent_that_was_idle(space: Workspace, answering: Answering) -> None:
    answering(start("sleep 0.5"), text("waiting"), text("woken"))

    done = space.run("run", "go")

    assert (done.code, done.stdout, done.stderr) == (0, "woken\n", "")
    [notice] = [m["source"] for m in rows(space, "user/message") if m["source"].get("form") == "notice"]
    assert notice == {
        "kind": "plugin",
        "plugin": "tool-jobs",
        "form": "notice",
        "summary": "bash sleep 0.5 [status: completed, exit code: 0]",
    }
    assert len(rows(space, "turn/end")) == 2


@pytest.mark.parametrize("mode", MODES)
def test_a_job_that_does_not_end_is_ended_with_the_run_and_told(
    space: Workspace, answering: Answering, mode: str
) -> None:
    answering(start("echo $$ > pid; trap '' TERM; sleep 321"), text("ok"))

    done = space.run("run", "go", env={"DSH_PERMISSION_MODE": mode})

    assert (done.code, done.stdout) == (0, "ok\n")
    [line] = done.errors
    assert line.startswith("dsh: 1 background job still ran and was ended: ")
    [dropped] = rows(space, "run/dropped")
    assert dropped["kind"] == "bash" and dropped["id"] == "bash-1"
    if mode == "danger-full-access":
        assert is_gone(int((space.work / "pid").read_text()))
    assert space.run("sessions", "verify", "last").code == 0


def test_a_killed_job_gives_no_notice(space: Workspace, answering: Answering) -> None:
    model = answering(
        start("sleep 321"),
        call("job_kill", job_id="bash-1", reason="enough"),
        call("job_output", job_id="bash-1", wait=True),
        text("ok"),
    )

    done = space.run("run", "go", env={"DSH_PERMISSION_MODE": "danger-full-access"})

    assert (done.code, done.stdout, done.stderr) == (0, "ok\n", "")
    assert results(model)[-1].split("\n") == ["(no new output)", "[status: killed, signal: SIGTERM]"]
    assert [m for m in rows(space, "user/message") if m["source"].get("form") == "notice"] == []
