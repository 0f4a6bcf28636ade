"""Hooks of a run as a process: secrets, sandbox, exit codes, what is told, and replay."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.testing.workspace import Workspace, log_rows, log_text
from tests.e2e.model import Model
from tests.process import is_gone, wait_until

SECRETS = {
    "GH_TOKEN": "ghp-value-1",
    "DB_PASSWORD": "pass-value-2",
    "MY_SECRET": "secret-value-3",
    "DSH_SESSION_ID": "stale",
}
PATCH = """
- insert:
    - id: {row}
      name: {row}
      config: {{configPath: !expr here('hooks.json'){more}}}
"""
ROWS = pytest.mark.parametrize("row", ["hooks-claude-code", "hooks-codex"])
needs_bwrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="there is no program bwrap")
WALLS = pytest.mark.parametrize("walls", [pytest.param("bwrap", marks=needs_bwrap), "landlock"])


def hook(space: Workspace, point: str, line: str, row: str = "hooks-claude-code", more: str = "") -> None:
    """Mount a row with one hook; its command lies in a script."""
    space.write("hook.sh", line)
    entry = {"hooks": [{"type": "command", "command": "bash ./hook.sh"}]}
    space.write("hooks.json", json.dumps({"hooks": {point: [entry]}}))
    space.write("p.yml", PATCH.format(row=row, more=more))


def hide(space: Workspace, walls: str, folder: Path) -> None:
    """For `landlock`, a search path without bubblewrap."""
    if walls == "landlock":
        folder.mkdir()
        for name in ("bash", "cat"):
            (folder / name).symlink_to(shutil.which(name) or name)
        space.env["PATH"] = str(folder)


def run(space: Workspace, words: str = "Run: echo hello", **env: str | None) -> Any:
    done = space.run("--profile", "demo", "--patch", "p.yml", words, env=env)
    assert "Traceback" not in done.stderr
    return done


def hook_lines(done: Any) -> list[str]:
    return [line for line in done.errors if "hook" in line]


@ROWS
def test_no_secret_reaches_a_hook_and_nothing_of_it_the_log(space: Workspace, row: str) -> None:
    hook(space, "UserPromptSubmit", "cat > /dev/null; env | sort | tee env.txt", row)

    done = run(space, **SECRETS, DEEPSEEK_API_KEY="sk-value-4567890")

    [log] = space.logs()
    seen = (space.work / "env.txt").read_text()
    for value in (*SECRETS.values(), "sk-value-4567890"):
        assert value not in seen
        assert value.encode() not in log_text(log)
        assert value not in done.stdout + done.stderr
    names = dict(line.split("=", 1) for line in seen.splitlines() if "=" in line)
    assert names["PATH"]
    assert names["HOME"] == str(space.home)
    assert names["DSH_SESSION_ID"] in str(log)
    assert names["TMPDIR"] == names["TMP"] == names["TEMP"]


@WALLS
@pytest.mark.parametrize(("mode", "is_written"), [("read-only", False), ("workspace-write", True)])
def test_a_hook_runs_under_the_policy_of_the_session(
    space: Workspace, walls: str, mode: str, is_written: bool, tmp_path: Path
) -> None:
    hide(space, walls, tmp_path / "bin")
    hook(
        space, "PostToolUse", "cat > /dev/null; echo x > $TMPDIR/x; echo x > formatted && echo y > ~/escaped"
    )

    done = run(space, DSH_PERMISSION_MODE=mode)

    assert done.code == 0
    assert done.stdout == "hello\n\n"
    assert (space.work / "formatted").exists() is is_written
    assert not (space.home / "escaped").exists()
    [told] = hook_lines(done)
    assert "hooks[0] (bash ./hook.sh) failed" in told
    assert is_written or "the sandbox refused it something, mode read-only" in told


@WALLS
def test_a_guard_guards_behind_walls(space: Workspace, walls: str, tmp_path: Path) -> None:
    hide(space, walls, tmp_path / "bin")
    hook(space, "PreToolUse", 'IN=$(cat); case "$IN" in *"rm -r"*) echo "not here" >&2; exit 2;; esac')

    done = run(space, "Run: rm -r build", DSH_PERMISSION_MODE="workspace-write")

    assert (done.code, done.stdout, hook_lines(done)) == (0, "Error: not here\n", [])


@pytest.mark.parametrize("mode", ["danger-full-access", pytest.param("workspace-write", marks=needs_bwrap)])
@pytest.mark.parametrize("line", ["echo seen", 'IN=$(cat); [ "${#IN}" -gt 100000 ] && echo seen'])
def test_a_long_payload_is_read_or_not_in_every_mode(space: Workspace, mode: str, line: str) -> None:
    hook(space, "UserPromptSubmit", line)

    done = run(space, "x" * 100_000, DSH_PERMISSION_MODE=mode)

    assert (done.code, hook_lines(done)) == (0, [])
    [log] = space.logs()
    messages = [row["data"] for row in log_rows(log) if row.get("type") == "user/message"]
    added = [m["content"][0]["text"] for m in messages if m["source"].get("plugin") == "hooks-claude-code"]
    assert added == ["seen"]


def test_a_refused_prompt_ends_the_run_and_says_why(space: Workspace) -> None:
    hook(space, "UserPromptSubmit", "echo 'no production today' >&2; exit 2")

    done = run(space)

    assert (done.code, done.stdout) == (1, "\n")
    assert hook_lines(done) == ["dsh: a UserPromptSubmit hook refused the task: no production today"]


def test_a_hook_that_ends_the_turn_is_named(space: Workspace) -> None:
    hook(space, "PreToolUse", """echo '{"continue": false, "stopReason": "freeze"}'""")

    done = run(space)

    assert done.code == 1
    assert hook_lines(done) == ["dsh: the turn ended aborted (PreToolUse hook: freeze)"]


@ROWS
def test_a_run_whose_hooks_have_nothing_to_say_is_as_quiet_as_one_without(space: Workspace, row: str) -> None:
    without = space.run("--profile", "demo", "Run: echo hello")
    hook(space, "PreToolUse", "echo fine", row)

    done = run(space)

    assert (done.code, done.stdout, done.errors) == (0, without.stdout, without.errors)


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [("", 0, "no hook of it runs"), (", onFailure: deny", 3, "hooks.json cannot be read")],
)
def test_a_missing_file_is_told_or_ends_the_start(space: Workspace, more: str, code: int, said: str) -> None:
    hook(space, "PreToolUse", "true", more=more)
    (space.work / "hooks.json").unlink()

    done = run(space)

    assert done.code == code
    assert any(said in line for line in done.errors)


def test_a_run_without_the_shell_says_what_the_hooks_wait_for(space: Workspace) -> None:
    hook(space, "PreToolUse", "true")
    text = (space.work / "p.yml").read_text()
    (space.work / "p.yml").write_text(
        "- {id: bash-sandbox, remove: true}\n- {id: tool-bash, remove: true}\n" + text
    )

    done = run(space)

    assert done.code == 3
    assert any("hooks-claude-code" in line and "shell" in line for line in done.errors)


def test_a_session_with_hooks_replays_without_running_one(space: Workspace) -> None:
    line = """
IN=$(cat); echo ran >> ran
case "$IN" in
  *UserPromptSubmit*) echo 'a context' ;;
  *'"stop_hook_active":false'*) echo 'once more' >&2; exit 2 ;;
esac
"""
    hook(space, "UserPromptSubmit", line)
    entry = [{"hooks": [{"type": "command", "command": "bash ./hook.sh"}]}]
    points = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")
    space.write("hooks.json", json.dumps({"hooks": dict.fromkeys(points, entry)}))
    assert run(space).code == 0
    (space.work / "ran").unlink()

    done = space.run("replay", "last", "--profile", "demo", "--patch", "p.yml")

    assert (done.code, done.errors) == (0, [])
    assert "replays as recorded" in done.stdout
    assert not (space.work / "ran").exists()


def test_what_hooks_add_is_in_the_request_and_the_log_is_sound(
    space: Workspace, answering: Callable[..., Model]
) -> None:
    hook(space, "UserPromptSubmit", "cat > /dev/null; echo 'the colour is teal'")
    model = answering({"text": ["teal"]})

    done = space.run("run", "--patch", "p.yml", "Which colour?")

    assert (done.code, done.stdout, done.stderr) == (0, "teal\n", "")
    [body] = model.bodies()
    said = [message["content"] for message in body["messages"] if message["role"] == "user"]
    assert said[0] == "Which colour?"
    assert said[-1] == "the colour is teal"
    [log] = space.logs()
    rows = [row for row in log_rows(log) if str(row.get("type")).startswith("hook/")]
    assert [row["type"] for row in rows] == ["hook/invoked", "hook/result"]
    verified = space.run("sessions", "verify", "last")
    assert verified.code == 0, verified.stdout


def test_sigterm_ends_a_hook_with_the_run(space: Workspace) -> None:
    hook(space, "PreToolUse", "echo $$ > pid.tmp; mv pid.tmp pid; exec sleep 300")
    process = space.start("--profile", "demo", "--patch", "p.yml", "Run: echo hello")
    wait_until((space.work / "pid").exists, process)
    process.terminate()

    assert process.wait(60) == 143
    assert is_gone(int((space.work / "pid").read_text()))
    process.communicate()
