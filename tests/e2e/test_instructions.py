"""Instruction files in whole runs: what the model gets, with the default confinement, and in a replay."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.workspace import Workspace, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import text
from tests.e2e.test_compaction import FULL, Runs, work
from tests.replaying import Rows, replayed, rewritten, without_digests

Answering = Callable[..., Model]
NESTED = {"nested/AGENTS.md": "nested rule", "nested/task.txt": "x", "AGENTS.md": "root rule"}


def reading(path: str) -> dict[str, Any]:
    return {"tools": [{"id": "call-read", "name": "read", "args": [json.dumps({"file_path": path})]}]}


def instructions(log: Path) -> list[str]:
    """The texts that entered steps."""
    return [
        row["data"]["content"][0]["text"]
        for row in log_rows(log)
        if row["type"] == "user/message" and row["data"]["source"]["kind"] == "agent-instructions"
    ]


@pytest.fixture
def log(space: Workspace, answering: Answering) -> Path:
    """A run that read a file below a nested AGENTS.md."""
    for name, content in NESTED.items():
        space.write(name, content)
    answering(reading("nested/task.txt"), text("done"))
    done = space.run("run", "DO THE TASK")
    assert (done.code, done.stderr) == (0, "")
    [path] = space.logs()
    return path


def test_the_model_gets_the_rules_in_the_requests(log: Path, answering: Answering) -> None:
    first, second = instructions(log)

    assert "root rule" in first
    assert "nested rule" in second


def test_the_file_of_the_home_counts_and_is_shown_by_the_variable(
    space: Workspace, answering: Answering
) -> None:
    answering(text("done"))
    space.home.mkdir(exist_ok=True)
    (space.home / "AGENTS.md").write_text("home rule")

    assert space.run("run", "DO THE TASK").code == 0

    [log] = space.logs()
    [told] = instructions(log)
    assert "home rule" in told
    assert re.search(r"from (\$DSH_HOME|~/\.dsh)/AGENTS\.md:", told)


@pytest.mark.parametrize("kind", ["fifo", "directory", "dangling", "latin-1"])
def test_a_bad_file_is_one_line_on_standard_error_and_no_reason_to_fail(
    kind: str, space: Workspace, answering: Answering
) -> None:
    path = space.work / "AGENTS.md"
    match kind:
        case "fifo":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "dangling":
            path.symlink_to("nowhere")
        case _:
            path.write_bytes("Größe".encode("latin-1"))
    answering(text("done"))

    done = space.run("run", "DO THE TASK")

    assert (done.code, done.stdout) == (0, "done\n")
    [line] = done.stderr.splitlines()
    assert f"the instructions in {path} are not loaded: " in line


def test_a_summary_leaves_the_rules_as_they_were(space: Workspace, answering: Answering) -> None:
    """Case CO-01: before and after each summary every request holds the rules, once."""
    space.write("AGENTS.md", "root rule")
    runs = Runs(space, answering)

    done = runs.run(
        *(work(n) for n in range(12)),
        *(work(12, tokens=FULL), text("## Goal: the first gist")),
        *(work(n) for n in range(20, 26)),
        *(work(26, tokens=FULL), text("## Goal: the second gist")),
        *(work(n) for n in range(30, 36)),
        text("all done"),
    )

    assert (done.code, done.stdout) == (0, "all done\n"), done.stderr
    assert len(runs.asked()) == 2
    told = [sum("root rule" in str(m["content"]) for m in body["messages"]) for body in runs.turns()]
    assert set(told) == {1}


# -- replays ---------------------------------------------------------------------------------------


def test_a_replay_gives_the_recorded_rules_wherever_it_runs(log: Path, space: Workspace) -> None:
    for name in NESTED:
        (space.work / name).unlink()
    space.write("AGENTS.md", "other rules, which nobody may read now")

    done = replayed(log)

    assert done.code == 0, done.told
    assert "note:" not in done.told
    assert not (space.work / "nested" / "task.txt").exists()


def test_rules_that_were_changed_in_the_record_are_found_by_its_digests(log: Path) -> None:
    def change(rows: Rows) -> None:
        for row in rows:
            if row["type"] == "user/message" and "root rule" in str(row):
                row["data"]["content"][0]["text"] = "changed"

    assert replayed(rewritten(log, change)).code == 1


def test_live_tools_look_at_the_files_of_their_directory(log: Path, space: Workspace) -> None:
    other = Workspace(space.root / "other")
    for name, content in NESTED.items():
        other.write(name, content)

    done = replayed(log, directory=other.work)

    assert done.code == 0, done.told


def test_live_tools_in_a_directory_with_other_rules_part_from_the_record(log: Path, space: Workspace) -> None:
    other = Workspace(space.root / "other")
    for name, content in {**NESTED, "nested/AGENTS.md": "another nested rule"}.items():
        other.write(name, content)

    done = replayed(rewritten(log, without_digests), directory=other.work)

    assert done.code == 1
    assert "another nested rule" in done.told
