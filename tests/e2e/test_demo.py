"""The first thing a user runs: no key, the built-in stand-in for a model, a real command."""

import pytest

from dsh.testing.workspace import Workspace, log_rows


def test_demo_runs_a_real_command_and_prints_its_output(space: Workspace) -> None:
    done = space.run("--profile", "demo", "Run: echo hello")
    assert done.code == 0, done.stderr
    assert "hello" in done.stdout
    assert "not a model" in done.stderr
    [log] = space.logs()
    types = [row["type"] for row in log_rows(log)]
    assert types[-1] == "turn/end"
    assert {"session", "tool/call", "tool/result", "assistant/message"} <= set(types)


def test_demo_echoes_what_is_no_command(space: Workspace) -> None:
    done = space.run("--profile", "demo", "how", "are", "you")
    assert (done.code, done.stdout) == (0, "offline demo model: how are you\n")


def test_demo_reads_a_file(space: Workspace) -> None:
    space.write("note.txt", "remember this\n")
    done = space.run("--profile", "demo", "Read: note.txt")
    assert done.code == 0
    assert "remember this" in done.stdout


@pytest.mark.parametrize("profile", ["demo", "headless"])
def test_missing_walls_are_told_in_one_line_unless_they_were_chosen(space: Workspace, profile: str) -> None:
    told = space.run("--profile", profile, "hi", env={"DSH_PERMISSION_MODE": None}).errors
    chosen = space.run("--profile", profile, "hi").errors
    assert [line for line in told if "not confined" in line] == [line for line in told if line not in chosen]
    assert len(told) == len(chosen) + 1
