"""Live replays of runs with background jobs: they run again, and their ends are told where they were."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import Reply, bash, text
from tests.e2e.test_background_jobs import FULL, background, call
from tests.replaying import Rows, replayed, rewritten, without_digests

Answering = Callable[..., Model]
READ = call("job_output", "o", job_id="bash-1")
RUNS: dict[str, list[Reply]] = {
    "between turns": [
        background("echo once >> ran; sleep 0.2; echo out"),
        text("waiting"),
        READ,
        text("done"),
    ],
    "while a tool works": [background("echo once >> ran; sleep 0.1"), bash("sleep 0.4"), READ, text("done")],
    "two of them": [
        background("echo once >> ran; sleep 0.1"),
        background("sleep 0.4"),
        text("waiting"),
        text("still waiting"),
        text("done"),
    ],
}


@pytest.fixture
def other(space: Workspace) -> Workspace:
    return Workspace(space.root / "other")


def recorded(space: Workspace, answering: Answering, replies: list[Reply]) -> Path:
    answering(*replies)
    assert space.run("run", "x", env=FULL).code == 0
    [log] = space.logs()
    assert "] is over [status: completed, exit code: 0]" in str(log_rows(log))
    return log


@pytest.mark.parametrize("kind", RUNS)
def test_the_end_of_a_job_is_told_where_it_was(
    kind: str, space: Workspace, answering: Answering, other: Workspace
) -> None:
    log = recorded(space, answering, RUNS[kind])

    done = replayed(log, directory=other.work)

    assert (done.code, done.divergence) == (0, None), done.told
    assert (other.work / "ran").read_text() == "once\n"


def test_a_job_that_ends_later_is_waited_for(
    space: Workspace, answering: Answering, other: Workspace
) -> None:
    log = recorded(
        space, answering, [background("[ ! -e slow ] || sleep 1"), bash("sleep 0.3"), READ, text("done")]
    )
    other.write("slow", "")

    done = replayed(log, directory=other.work)

    assert (done.code, done.divergence) == (0, None), done.told


def test_a_job_that_ends_otherwise_is_a_difference(
    space: Workspace, answering: Answering, other: Workspace
) -> None:
    job = background("sleep 0.1; [ ! -e bad ]")
    log = recorded(space, answering, [job, text("waiting"), text("done")])
    other.write("bad", "")

    done = replayed(log, directory=other.work)

    assert done.code == 1
    assert "background job bash-1 has ended otherwise: [status: completed, exit code: 1]" in done.told
    assert done.difference.type == "agent/inbox/spliced"


def test_the_end_of_a_job_that_never_began_is_a_difference(
    space: Workspace, answering: Answering, other: Workspace
) -> None:
    log = recorded(space, answering, RUNS["between turns"])

    def change(rows: Rows) -> None:
        without_digests(rows)
        for at, row in enumerate(rows):
            if "is over" in str(row):
                rows[at] = json.loads(json.dumps(row).replace("bash-1", "bash-11"))

    done = replayed(rewritten(log, change), directory=other.work)

    assert done.code == 1
    assert "no such job has begun" in done.told
