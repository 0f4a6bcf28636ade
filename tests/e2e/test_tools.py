"""The tools as a model meets them: what it may get wrong, and what the machine may lack."""

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from dsh.plugins.tool_bash.result import BACKGROUND_NOTE, DETACHED_NOTE, ENDED_NOTE
from dsh.testing.workspace import Finished, Workspace, finish, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import text
from tests.process import is_gone, is_running

Answering = Callable[..., Model]
Call = tuple[str, str]


FULL = {"DSH_PERMISSION_MODE": "danger-full-access"}


def bash(command: str, **more: Any) -> Call:
    return "bash", json.dumps({"command": command, **more})


def results(space: Workspace) -> list[dict[str, Any]]:
    """What the log says of each call, in order: `text`, `isError`, `code`."""
    [log] = space.logs()
    found = []
    for row in log_rows(log):
        if row.get("type") == "tool/result":
            data = row["data"]
            [block] = data["message"]["content"]
            found.append(
                {
                    "text": "".join(part["text"] for part in block["content"]),
                    "isError": block.get("isError", False),
                    "code": data.get("error", {}).get("code"),
                }
            )
    return found


def calling(answering: Answering, *calls: Call) -> None:
    """Let the model make these calls one after the other, then end."""
    replies = [
        {"tools": [{"id": f"call_{at}", "name": name, "args": [raw]}]} for at, (name, raw) in enumerate(calls)
    ]
    answering(*replies, text("done"))


def run(space: Workspace, answering: Answering, *calls: Call, **env: str) -> tuple[Finished, list[str]]:
    """Run the calls to the end of the turn; what the model saw of each."""
    calling(answering, *calls)
    done = space.run("run", "x", env=env)
    found = results(space)
    assert len(found) == len(calls)
    return done, [result["text"] for result in found]


UNUSABLE: list[Call] = [
    (tool, raw)
    for tool in ("bash", "read", "write", "edit", "glob", "grep", "no_such_tool", "")
    for raw in ("", "{", "null", "[1]", '"x"', "NaN", '{"a": 1e999}', "[" * 5000, '{"command": 1}')
]


def test_no_arguments_a_model_can_write_end_the_run(space: Workspace, answering: Answering) -> None:
    """Each call gets one readable result, whatever its arguments look like, and the turn goes on."""
    tools = [{"id": f"c{at}", "name": name, "args": [raw]} for at, (name, raw) in enumerate(UNUSABLE)]
    answering({"tools": tools}, text("done"))

    done = space.run("run", "x")

    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    found = results(space)
    assert len(found) == len(UNUSABLE)
    for (name, _), result in zip(UNUSABLE, found, strict=True):
        assert result["isError"]
        is_known = name not in ("no_such_tool", "")
        assert result["code"] == ("INVALID_ARGS" if is_known else "UNKNOWN_TOOL")
        assert result["text"].startswith("Error: ")
        assert len(result["text"]) < 400


def test_text_that_is_no_text_reaches_the_model_as_valid_unicode(
    space: Workspace, answering: Answering
) -> None:
    """SH-05, SL-05: undecodable bytes, escape sequences, NUL and half a surrogate pair."""
    done, seen = run(
        space,
        answering,
        bash(r"printf 'caf\xe9\n'"),
        bash(r"printf '\033[31mred\033[0m\r50%%\n'"),
        bash(r"printf 'a\0b'"),
        bash("head -c 3000 /dev/urandom"),
        ("bash", r'{"command": "echo \ud83d"}'),
    )

    assert (done.code, done.stdout) == (0, "done\n")
    assert seen[:3] == ["caf\ufffd\n", "50%\n", "a␀b"]
    assert seen[4] == "\ufffd\n"


def test_a_machine_without_bash_is_told_to_the_model(space: Workspace, answering: Answering) -> None:
    done, seen = run(space, answering, bash("echo hi"), PATH="/nonexistent", **FULL)

    assert done.code == 0
    assert seen == ["Error: cannot start 'bash': there is no such program on PATH"]


def test_a_working_directory_that_was_removed_is_named(space: Workspace, answering: Answering) -> None:
    done, seen = run(
        space,
        answering,
        bash('rm -rf "$PWD"'),
        bash("echo hi"),
        ("glob", '{"pattern": "*"}'),
        ("grep", '{"pattern": "x"}'),
        ("read", '{"file_path": "a.txt"}'),
        bash("echo still here", workdir="/"),
        **FULL,
    )

    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    assert seen[1] == f"Error: the working directory '{space.work}' is gone; name another one with workdir"
    assert all(f'"{space.work}' in shown for shown in seen[2:5])
    assert seen[5] == "still here\n"


def test_exit_codes_are_true_although_the_caller_ignores_its_children(
    space: Workspace, answering: Answering
) -> None:
    """An ignored SIGCHLD is inherited, and under it the system throws exit codes away."""
    calling(answering, bash("exit 7"))
    process = subprocess.Popen(
        ["bash", "-c", "trap '' CHLD; exec \"$@\"", "bash", *space.program, "run", "x"],
        cwd=space.work,
        env=space.environment({}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )

    assert finish(process).code == 0
    assert [result["text"] for result in results(space)] == ["(no output)\n[exit code: 7]"]


def test_what_a_command_leaves_behind_is_told_and_ended_with_the_run(
    space: Workspace, answering: Answering
) -> None:
    """SH-01: also a child that was stopped; what left the group is told apart."""
    _, seen = run(
        space,
        answering,
        bash("sleep 300 & echo $! > left.pid"),
        bash("sleep 301 >/dev/null 2>&1 & kill -STOP $!; echo $! > stopped.pid"),
        bash("setsid sleep 302 & echo $! > detached.pid; echo up"),
        bash("echo later calls work"),
        **FULL,
    )

    note, detached = BACKGROUND_NOTE, DETACHED_NOTE
    assert seen == [
        f"(no output)\n{note}",
        f"(no output)\n{note}",
        f"up\n{detached}",
        "later calls work\n",
    ]
    pids = {name: int((space.work / f"{name}.pid").read_text()) for name in ("left", "stopped", "detached")}
    assert is_gone(pids["left"])
    assert is_gone(pids["stopped"])
    assert is_running(pids["detached"])
    os.kill(pids["detached"], signal.SIGKILL)


def test_what_a_confined_command_leaves_behind_ends_with_it_and_is_told(
    space: Workspace, answering: Answering
) -> None:
    """SH-01: in a view of processes of its own nothing outlives the command, whatever it does to be alone."""
    if shutil.which("bwrap") is None:
        pytest.skip("there is no bwrap here")
    done, seen = run(
        space,
        answering,
        bash("sleep 300 & echo up"),
        bash("sleep 301 </dev/null >/dev/null & echo up"),
        bash("setsid sleep 302 & echo up"),
        bash("(while :; do echo tick; sleep 0.2; done) & echo up"),
        bash("exec >&-; sleep 0.1"),
    )
    if any("bwrap" in shown for shown in seen) or BACKGROUND_NOTE in seen[0]:
        pytest.skip("bwrap does not work here")

    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    assert [shown.splitlines()[-1] for shown in seen[:4]] == [ENDED_NOTE] * 4
    assert all("up\n" in shown for shown in seen[:4])
    assert seen[4] == "(no output)"


@pytest.mark.parametrize(
    "command", ["python3 < /dev/tty", "cat", "read -r x", "git commit", "less /etc/passwd"]
)
def test_a_command_that_asks_gets_no_answer_and_ends(
    space: Workspace, answering: Answering, command: str
) -> None:
    """SH-03: nothing to read from and no terminal to open."""
    done, _ = run(space, answering, bash(command))

    assert (done.code, done.stdout) == (0, "done\n")
