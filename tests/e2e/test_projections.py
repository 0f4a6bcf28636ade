"""The projections of real jobs: what lies beside a log is what the log says, whenever the job was killed."""

import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.projections import read_rows, sidecar_path, title_of
from dsh.persistence.view import LogView, build_view
from dsh.session.projection.context_size import CONTEXT_BREAKDOWN, CONTEXT_PRESSURE
from dsh.session.projection.fold import checkpoint
from dsh.session.projection.stats import STATS, view
from dsh.session.projection.title import TITLE
from dsh.session.projection.todos import TODOS
from dsh.session.projection.token_usage import TOKEN_USAGE
from dsh.session.projection.unit import Unit, fold
from dsh.testing.workspace import Workspace
from tests.e2e.model import serve
from tests.e2e.reply import bash, failure, text

UNITS: list[Unit[Any]] = [STATS, TITLE, TODOS, TOKEN_USAGE, CONTEXT_PRESSURE, CONTEXT_BREAKDOWN]
EAGER = "- {id: session-projection-cache, merge: {writeEveryEvents: 2, writeIntervalMs: 5}}\n"


def view_of(log: Path) -> LogView:
    return build_view(read_log(log))


def check_rows(log: Path) -> int:
    """The rows stored beside a log are what the log says at their events; answers how many there are."""
    seen = view_of(log)
    rows = read_rows(sidecar_path(log), seen.header)
    for unit in UNITS:
        if (row := rows.get(unit.key)) is not None:
            assert row.seq < seen.stored_length, "the cache leads the log"
            state = fold(unit, seen.events(0, row.seq + 1))
            assert row == checkpoint(unit, state, row.seq)
    return len(rows)


def test_after_a_job_the_cache_says_what_the_whole_log_says(space: Workspace) -> None:
    with serve([failure(503, "busy"), bash("echo done"), text("ok")]) as model:
        space.use_model(model.base_url)
        done = space.run("run", "look at the tests of module seven")

    assert (done.code, done.stdout) == (0, "ok\n")
    (log,) = space.logs()
    assert check_rows(log) == len(UNITS)
    seen = view_of(log)
    rows = read_rows(sidecar_path(log), seen.header)
    assert {row.seq for row in rows.values()} == {seen.stored_length - 1}
    assert title_of(rows) == "look at the tests of"
    found = view(STATS.load(rows[STATS.key].val))
    assert (found["turns"], found["steps"], found["requests"], found["retries"]) == (1, 2, 3, 1)
    assert found["tools"]["bash"]["calls"] == 1


@pytest.mark.parametrize("seed", range(8))
def test_a_kill_at_any_time_leaves_a_cache_that_does_not_lead_the_log(space: Workspace, seed: int) -> None:
    patch = space.write("p.yml", EAGER)
    job = [
        bash("sleep 0.02; echo one", "c1") | {"text": ["first "] * 10, "delay_ms": 3},
        bash("sleep 0.02; echo two", "c2") | {"text": ["second "] * 10, "delay_ms": 3},
        text(*["last "] * 20, delay_ms=3),
    ]
    with serve(job) as model:
        space.use_model(model.base_url)
        process = space.start("run", "--patch", str(patch), "go")
        while not space.logs() and process.poll() is None:
            time.sleep(0.002)
        time.sleep(random.Random(seed).uniform(0, 0.35))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    (log,) = space.logs()
    check_rows(log)
    assert space.run("sessions", "list").code == 0


def test_a_job_that_runs_and_one_that_was_killed_have_their_title_in_the_list(space: Workspace) -> None:
    def listed() -> str:
        (found,) = json.loads(space.run("sessions", "list", "--json").stdout)["sessions"]
        return str(found["title"])

    with serve([text(*["word "] * 200, delay_ms=100)]) as model:
        space.use_model(model.base_url)
        process = space.start("run", "look at the tests of module seven")
        while not [log for log in space.logs() if sidecar_path(log).exists()] and process.poll() is None:
            time.sleep(0.01)
        assert process.poll() is None
        assert listed() == "look at the tests of"
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()

    assert listed() == "look at the tests of"
    (log,) = space.logs()
    check_rows(log)


def test_the_rows_can_all_be_taken_away(space: Workspace) -> None:
    patch = space.write(
        "p.yml",
        "- {id: session-projection-cache, remove: true}\n"
        "- {id: session-stats, remove: true}\n"
        "- {id: session-projection, remove: true}\n",
    )
    with serve([text("ok")]) as model:
        space.use_model(model.base_url)
        done = space.run("run", "--patch", str(patch), "hello")

    assert (done.code, done.stdout, done.stderr) == (0, "ok\n", "")
    (log,) = space.logs()
    assert not sidecar_path(log).exists()
