"""The shell in whole runs, in every sandbox mode: what a run leaves, what it keeps, what it costs."""

import json
import os
import random
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsh.testing.workspace import Workspace, finish, log_rows, log_text
from tests.e2e.model import Model
from tests.e2e.reply import bash, text
from tests.leftovers import MARK, left_over
from tests.process import is_gone, wait_until

Answering = Callable[..., Model]
MODES = ["danger-full-access", "workspace-write", "read-only"]
PERSISTENT = """
- insert: [{id: tool-bash-persistent, name: tool-bash-persistent}]
- {id: tool-bash, disabled: true}
"""


def some_time() -> str:
    """Seconds that nobody else sleeps: a process is found by them in any view of processes."""
    return f"3{random.randrange(10**6):06}.{random.randrange(10**9):09}"


def sleeping(seconds: str) -> list[int]:
    """The processes that sleep so long."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if seconds.encode() in file.read_bytes().split(b"\0"):
                found.append(int(file.parent.name))
        except OSError:
            continue
    return found


def told(model: Model) -> list[str]:
    """The results of the calls, as the last request holds them."""
    return [m["content"] for m in model.bodies()[-1]["messages"] if m["role"] == "tool"]


def unless_unconfined(space: Workspace, mode: str) -> None:
    """A mode that no backend here can keep is refused at the start: then there is nothing to test."""
    if mode == "danger-full-access":
        return
    done = Workspace(space.work.parent / "probe").run("run", "x", env={"DSH_PERMISSION_MODE": mode})
    if done.code == 3:
        pytest.skip(f"no sandbox works here: {done.stderr}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_a_signal_in_a_call_ends_the_command(
    space: Workspace, answering: Answering, mode: str, number: signal.Signals, code: int
) -> None:
    """HL-05, and the kill that cannot be heard."""
    unless_unconfined(space, mode)
    seconds = some_time()
    answering(bash(f"(sleep {seconds} &); sleep {seconds}"), text("never"))
    process = space.start("run", "x", env={"DSH_PERMISSION_MODE": mode})
    wait_until(lambda: len(sleeping(seconds)) == 2, process)
    children = sleeping(seconds)

    process.send_signal(number)
    done = finish(process, timeout_s=30)

    assert done.code == code
    assert all(map(is_gone, children))
    assert not sleeping(seconds)


@pytest.mark.parametrize("mode", MODES)
def test_much_output_is_cut_in_the_log_and_nothing_of_it_is_lost(
    space: Workspace, answering: Answering, mode: str
) -> None:
    """SL-07: the row is bounded; the file with all of it opens from the next command, in every mode."""
    unless_unconfined(space, mode)
    model = answering(bash("seq 1 3000000"), bash("echo later"), text("done"))
    done = space.run("run", "x", env={"DSH_PERMISSION_MODE": mode})

    assert (done.code, done.stdout) == (0, "done\n")
    shown, later = told(model)
    assert later == "later\n"
    assert re.search(r"3000000\n\[output truncated; full output: /\S+\]$", shown)
    [log] = space.logs()
    assert all(len(line) < 200_000 for line in log_text(log).splitlines())


@pytest.mark.parametrize("mode", MODES)
def test_the_file_with_all_of_an_output_opens_from_bash(
    space: Workspace, answering: Answering, mode: str
) -> None:
    unless_unconfined(space, mode)
    print_much = f"seq 1 30000; echo {'x' * 30} >&2"
    script = [
        bash(print_much),
        bash("wc -l < $(find $(dirname $TMPDIR) -name '*stdout.log' 2>/dev/null)"),
        bash("touch $TMPDIR/x && echo made; ls $TMPDIR"),
        text("done"),
    ]
    model = answering(*script)
    done = space.run("run", "x", env={"DSH_PERMISSION_MODE": mode})

    assert done.code == 0
    _, counted, made = told(model)
    assert counted.strip() == "30000"
    assert ("made\nx\n" in made) is (mode != "read-only")


@pytest.mark.parametrize("mode", MODES)
def test_a_shell_that_lives_on_in_a_run(space: Workspace, answering: Answering, mode: str) -> None:
    unless_unconfined(space, mode)
    space.write("persistent.yml", PERSISTENT)
    seconds = some_time()
    model = answering(
        bash("cd /usr; X=kept; echo $DSH_SESSION_ID $MY_SECRET"),
        bash(f"pwd; echo $X; sleep {seconds} & touch {space.work}/made"),
        text("done"),
    )
    env = {"DSH_PERMISSION_MODE": mode, "MY_SECRET": "hush"}
    done = space.run("run", "--patch", "persistent.yml", "x", env=env)

    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    first, second = told(model)
    [log] = space.logs()
    assert first == f"{log_rows(log)[0]['id']}\n"
    assert second.startswith("/usr\nkept\n")
    assert (space.work / "made").exists() is (mode != "read-only")
    assert all(map(is_gone, sleeping(seconds)))
    assert not sleeping(seconds)


def test_a_killed_run_leaves_no_shell_that_lives_on(space: Workspace, answering: Answering) -> None:
    space.write("persistent.yml", PERSISTENT)
    seconds = some_time()
    answering(
        bash(f"(set -m; sleep {seconds} & sleep {seconds} & echo made > here); sleep 300"), text("never")
    )
    process = space.start(
        "run", "--patch", "persistent.yml", "x", env={"DSH_PERMISSION_MODE": "danger-full-access"}
    )
    wait_until(lambda: len(sleeping(seconds)) == 2 and (space.work / "here").exists(), process)
    children = sleeping(seconds)

    process.kill()
    process.communicate()

    assert all(map(is_gone, children))


def test_a_killed_run_leaves_no_search(space: Workspace, answering: Answering) -> None:
    seconds = some_time()
    rg = space.write("bin/rg", f"#!/bin/sh\nsleep {seconds} &\nexec sleep {seconds}\n")
    rg.chmod(0o755)
    search = {"tools": [{"id": "call_s", "name": "grep", "args": [json.dumps({"pattern": "x"})]}]}
    answering(search, text("never"))
    process = space.start("run", "x", env={"PATH": f"{rg.parent}:{os.environ['PATH']}"})
    wait_until(lambda: len(sleeping(seconds)) == 2, process)
    children = sleeping(seconds)

    process.kill()
    process.communicate()

    assert all(map(is_gone, children))


@pytest.mark.parametrize("mode", MODES[:2])
def test_what_outlived_its_command_ends_with_a_killed_run(
    space: Workspace, answering: Answering, mode: str
) -> None:
    """SH-01, and whatever group or descriptor it holds."""
    unless_unconfined(space, mode)
    seconds = some_time()
    answering(bash(f"sleep {seconds} & (sleep {seconds} >/dev/null 2>&1 &)"), bash("touch here; sleep 300"))
    process = space.start("run", "x", env={"DSH_PERMISSION_MODE": mode})
    wait_until((space.work / "here").exists, process)
    children = sleeping(seconds)

    process.kill()
    process.communicate()

    assert len(children) == (2 if mode == "danger-full-access" else 0)
    assert all(map(is_gone, children))


@pytest.mark.slow
@pytest.mark.parametrize("wait_ms", range(0, 36, 3))
def test_a_run_killed_while_a_command_starts_leaves_nothing(
    space: Workspace, answering: Answering, wait_ms: int
) -> None:
    """A runner may be caught between its halves, a launcher before it has heard whose child it is."""
    mark = f"{MARK}-{random.randrange(10**12)}"
    model = answering(bash("sleep 300"), text("never"))
    process = space.start("run", "x", env={MARK: mark})
    wait_until(model.bodies, process)
    time.sleep(wait_ms / 1000)

    process.kill()
    process.communicate()

    assert not left_over(mark)
