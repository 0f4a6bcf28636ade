"""The first thing a user runs: no key, the built-in stand-in for a model, a real command."""

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


def test_missing_walls_are_told_in_one_line_unless_they_were_chosen(space: Workspace) -> None:
    told = space.run("--profile", "demo", "hi").errors
    chosen = space.run("--profile", "demo", "hi", env={"DSH_PERMISSION_MODE": "danger-full-access"}).errors
    [line] = [line for line in told if line not in chosen]
    assert "not confined" in line
    assert len(told) == len(chosen) + 1


def test_headless_has_walls_and_says_nothing(space: Workspace) -> None:
    assert "not confined" not in space.run("--profile", "headless", "hi").stderr
