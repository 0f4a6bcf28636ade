"""Signals: the turn is closed in the log, children are gone, the code is right, a second one ends at once."""

import contextlib
import os
import pty
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsh.cli.shutdown import DISPOSAL_S
from dsh.testing.workspace import Finished, Workspace, finish, log_rows
from tests.e2e.model import Model
from tests.e2e.reply import bash, text
from tests.process import is_gone, wait_until

Answering = Callable[..., Model]

IN_BOOT = """
import asyncio, pathlib
async def apply(ctx):
    ctx.effect(lambda: lambda: pathlib.Path("disposed").touch())
    pathlib.Path("mounting").touch()
    await asyncio.sleep(60)
"""
NEVER_DISPOSED = """
import asyncio, pathlib
def apply(ctx):
    async def undo():
        pathlib.Path("disposing").touch()
        await asyncio.sleep(60)
    ctx.effect(lambda: undo)
"""


def wait_for(path: Path) -> None:
    wait_until(lambda: path.exists() and (path.suffix != ".pid" or path.read_text().strip()))


def last_row(space: Workspace) -> dict[str, object]:
    [log] = space.logs()
    return log_rows(log)[-1]


def in_tool(space: Workspace, answering: Answering, *numbers: signal.Signals) -> Finished:
    """Run a command that leaves a child in the background, and send the signals while it waits."""
    answering(bash("sleep 321 & echo $! > child.pid; wait"), text("never"))
    process = space.start("run", "x", env={"DSH_PERMISSION_MODE": "danger-full-access"})
    wait_for(space.work / "child.pid")  # a sandbox would count processes anew
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.2)
    return finish(process, timeout_s=20)


@pytest.mark.parametrize(
    ("number", "code", "cause"),
    [
        (signal.SIGINT, 130, {"kind": "user"}),
        (signal.SIGTERM, 143, {"kind": "hook", "reason": "signal:SIGTERM"}),
    ],
)
def test_signal_in_a_tool_closes_the_turn_and_ends_the_children(
    space: Workspace, answering: Answering, number: signal.Signals, code: int, cause: dict[str, str]
) -> None:
    done = in_tool(space, answering, number)
    assert (done.code, done.stdout, done.stderr) == (code, "\n", "")
    row = last_row(space)
    assert row["type"] == "turn/end"
    assert row["data"] == {"turn": 1, "reason": {"kind": "aborted", "reason": cause}}
    assert is_gone(int((space.work / "child.pid").read_text()))


def test_second_signal_ends_at_once_and_leaves_no_child(space: Workspace, answering: Answering) -> None:
    answering(bash("trap '' TERM; sleep 321 & echo $! > child.pid; while :; do wait; done"), text("never"))
    process = space.start("run", "x", env={"DSH_PERMISSION_MODE": "danger-full-access"})
    wait_for(space.work / "child.pid")
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == 130
    assert last_row(space)["type"] != "turn/end", "it did not wait for the orderly end"
    assert is_gone(int((space.work / "child.pid").read_text()))


def test_signal_in_a_stream_prints_what_there_is(space: Workspace, answering: Answering) -> None:
    model = answering(text("one ", "two ", *["more "] * 200, delay_ms=100))
    process = space.start("run", "x")
    while not model.bodies():
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    done = finish(process, timeout_s=20)
    assert done.code == 143
    assert done.stdout.startswith("one ") and done.stdout.endswith("\n")
    assert last_row(space)["type"] == "turn/end"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_during_the_boot_disposes_and_prints_nothing(
    space: Workspace, number: signal.Signals, code: int
) -> None:
    space.write("slow.py", IN_BOOT)
    space.write("p.yml", "- insert:\n    - {id: slow, name: ./slow.py}\n")
    process = space.start("--profile", "headless", "--patch", "p.yml", "x")
    wait_for(space.work / "mounting")
    process.send_signal(number)
    done = finish(process, timeout_s=10)
    assert (done.code, done.stdout, done.stderr) == (code, "", "")
    assert (space.work / "disposed").exists()
    assert space.logs() == []


def test_two_interrupts_at_a_terminal_end_a_disposal_that_never_ends(
    space: Workspace, answering: Answering
) -> None:
    answering(text("done"))
    space.write("stuck.py", NEVER_DISPOSED)
    space.write("p.yml", "- insert:\n    - {id: stuck, name: ./stuck.py}\n")
    words = [*space.program, "--profile", "headless", "--patch", "p.yml", "x"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(space.work)
        os.execve(words[0], words, space.environment({}))
    wait_for(space.work / "disposing")
    os.write(terminal, b"\x03")
    time.sleep(0.1)
    with contextlib.suppress(OSError):  # the first one was enough: a normal end was under way
        os.write(terminal, b"\x03")
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130, "0 is the code of the bound"


@pytest.mark.slow
def test_stuck_disposal_is_cut_after_its_bound_with_the_code_of_the_run(
    space: Workspace, answering: Answering
) -> None:
    answering(text("done"))
    space.write("stuck.py", NEVER_DISPOSED)
    space.write("p.yml", "- insert:\n    - {id: stuck, name: ./stuck.py}\n")
    start = time.monotonic()
    done = space.run("--profile", "headless", "--patch", "p.yml", "x", timeout_s=20)
    assert (done.code, done.stdout) == (0, "done\n")
    assert time.monotonic() - start > DISPOSAL_S
