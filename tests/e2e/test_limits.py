"""Limits of a turn and of a run, through the whole program: exit code, one line, a log that is closed."""

from collections.abc import Callable
from typing import Any

import pytest

from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import Reply, bash, text

Answering = Callable[..., Model]


def costly(tokens: int) -> Reply:
    usage = {"prompt_tokens": tokens - 5, "completion_tokens": 5, "total_tokens": tokens}
    return {**bash("echo again"), "usage": usage}


def reason_of(space: Workspace) -> Any:
    [log] = space.logs()
    [end] = [row for row in log_rows(log) if row.get("type") == "turn/end"]
    return end["data"]["reason"]


def limited(space: Workspace, row: str, keys: str) -> list[str]:
    space.write("limits.yml", f"- id: {row}\n  merge: {{{keys}}}\n")
    return ["run", "--patch", "limits.yml", "work for ever"]


@pytest.mark.parametrize(
    ("row", "keys", "name", "requests", "words"),
    [
        ("headless-runner", "maxSteps: 3", "steps", 3, "headless-runner.maxSteps"),
        ("agent-loop", "maxStepsPerTurn: 2", "steps", 2, "agent-loop.maxStepsPerTurn"),
        ("headless-runner", "maxTokensTotal: 2500", "tokens", 3, "headless-runner.maxTokensTotal"),
        ("agent-loop", "maxTokensPerTurn: 1000", "tokens", 1, "agent-loop.maxTokensPerTurn"),
    ],
)
def test_a_model_that_never_ends_is_stopped_between_two_steps(
    space: Workspace, answering: Answering, row: str, keys: str, name: str, requests: int, words: str
) -> None:
    model = answering(costly(1000))
    done = space.run(*limited(space, row, keys))
    assert (done.code, done.stdout) == (5, "\n")
    assert len(done.errors) == 1
    assert f"limit of {name}" in done.stderr and words in done.stderr
    assert len(model.bodies()) == requests
    assert reason_of(space) == {"kind": "aborted", "reason": {"kind": "hook", "reason": f"limit:{name}"}}
    assert space.run("sessions", "verify", "last").code == 0


@pytest.mark.parametrize(("row", "key"), [("headless-runner", "timeoutMs"), ("agent-loop", "maxTurnMs")])
def test_a_run_that_takes_too_long_is_cancelled_in_the_middle_of_a_command(
    space: Workspace, answering: Answering, row: str, key: str
) -> None:
    answering(bash("sleep 300"), text("never"))
    done = space.run(*limited(space, row, f"{key}: 1500"))
    assert (done.code, done.stdout) == (124, "\n")
    assert len(done.errors) == 1 and "limit of time" in done.stderr
    assert reason_of(space) == {"kind": "aborted", "reason": {"kind": "hook", "reason": "limit:timeout"}}
    assert space.run("sessions", "verify", "last").code == 0


def test_a_task_that_is_done_within_its_limits_is_a_success(space: Workspace, answering: Answering) -> None:
    answering(bash("echo once"), text("done"))
    keys = "maxSteps: 2, maxTokensTotal: 100000, timeoutMs: 60000"
    done = space.run(*limited(space, "headless-runner", keys))
    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize("keys", ["maxSteps: 0", "timeoutMs: 1.5", "maxTokensTotal: many"])
def test_a_limit_that_is_none_is_refused_at_the_start(
    space: Workspace, answering: Answering, keys: str
) -> None:
    model = answering(text("never"))
    done = space.run(*limited(space, "headless-runner", keys))
    assert done.code == 3
    assert keys.split(":", 1)[0] in done.stderr
    assert model.bodies() == []
