"""The guard: what a process has started does not outlive a kill of it, and strangers are left alone.

Each test kills a program that has started children through `ProcessGroup`, as the subprocess service does.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process import is_gone, is_running, wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is a guard on Linux only")

PROGRAM = """\
import os, subprocess, sys
from dsh.capabilities import guard
from dsh.capabilities.process_group import ProcessGroup

def named(popen):
    return popen.stdout.readline().decode().strip()

def begin(command):
    popen = subprocess.Popen(
        ["bash", "-c", command], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )
    return popen, ProcessGroup(popen.pid)

guard.start()
print(guard._running.pid)
"""
WAIT = "sys.stdout.flush(); sys.stdin.read()\n"


class Program:
    """A running program, its guard, and the processes it names line by line."""

    def __init__(self, body: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM + body + WAIT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.guard = self.pid()

    def pid(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def programs() -> Iterator[list[Program]]:
    started: list[Program] = []
    yield started
    for one in started:
        one.kill()
        for pipe in (one.process.stdin, one.process.stdout):
            assert pipe is not None
            pipe.close()


def killed(programs: list[Program], body: str, count: int) -> tuple[Program, list[int]]:
    """Run the body, read so many process ids, kill the program and wait for its guard."""
    program = Program(body)
    programs.append(program)
    pids = [program.pid() for _ in range(count)]
    assert all(is_running(pid) for pid in pids)
    program.kill()
    assert is_gone(program.guard)
    return program, pids


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("sleep 300 & echo $!; wait", id="of the command"),
        pytest.param("(sleep 300 & echo $!; wait) & wait", id="of its children"),
        pytest.param("set -m; sleep 300 & echo $!; wait", id="in a group of its own"),
        pytest.param("trap '' TERM HUP; sleep 300 & echo $!; wait", id="that heeds no signal"),
        pytest.param(
            "exec -a ') S 1 1 1\n(' bash -c 'sleep 300 & echo $!; wait; :'", id="of one with a bad name"
        ),
    ],
)
def test_what_a_command_has_started_ends_with_the_program(programs: list[Program], command: str) -> None:
    body = f"popen, _ = begin({command!r})\nprint(named(popen), popen.pid, sep='\\n')\n"
    _, pids = killed(programs, body, 2)
    assert all(is_gone(pid) for pid in pids)


def test_what_outlived_its_command_ends_with_the_program(programs: list[Program]) -> None:
    body = (
        "popen, group = begin('sleep 300 & echo $!')\nprint(named(popen))\n"
        "popen.wait()\ngroup.leader_reaped = True\nassert group.is_alive()\n"
    )
    _, pids = killed(programs, body, 1)
    assert is_gone(pids[0])


def test_a_child_that_is_not_told_yet_is_known_by_its_output(programs: list[Program]) -> None:
    body = (
        "there, ours = os.pipe()\nguard.expect(ours)\n"
        "command = ['bash', '-c', 'sleep 300 & echo $! >&2; wait']\n"
        "popen = subprocess.Popen(command, stdout=ours, stderr=subprocess.PIPE, start_new_session=True)\n"
        "child = popen.stderr.readline().decode().strip()\nos.kill(popen.pid, 9)\n"
        "stranger = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "near = subprocess.Popen(['sleep', '300'], stdout=ours)\n"
        "print(child, stranger.pid, near.pid, sep='\\n')\n"
    )
    _, (child, *others) = killed(programs, body, 3)
    assert is_gone(child)
    assert all(is_running(pid) for pid in others)
    for pid in others:
        os.kill(pid, signal.SIGKILL)


def test_what_made_a_session_of_its_own_lives_on(programs: list[Program]) -> None:
    body = "popen, _ = begin('setsid sleep 300 & echo $!; wait')\nprint(named(popen))\n"
    program = Program(body)
    programs.append(program)
    pid = program.pid()
    wait_until(lambda: os.getsid(pid) == pid)
    program.kill()
    assert is_gone(program.guard)
    assert is_running(pid)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "told",
    [
        pytest.param("guard.watch({pid}, [('{pid}', 1)])", id="another start time"),
        pytest.param("guard.watch({pid}, [('1', 1), ('{pid}', 1)])", id="members that are gone"),
        pytest.param("ProcessGroup({pid}); guard.forget({pid})", id="taken back"),
        pytest.param(
            "me = open('/proc/self/stat').read().rpartition(')')[2].split()[19]\n"
            "_, group = begin('exec sleep 300')\nguard.watch({pid}, [(str(group.pgid), int(me))])",
            id="a member with another start time",
        ),
    ],
)
def test_a_number_that_is_another_s_by_now_is_left_alone(programs: list[Program], told: str) -> None:
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True)
    try:
        killed(programs, told.format(pid=stranger.pid) + "\nprint(os.getpid())\n", 1)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_child_that_only_shares_a_session_with_others_is_not_told(programs: list[Program]) -> None:
    """Its number names no session; that of the tests would be hit."""
    other = subprocess.Popen(["sleep", "300"])
    try:
        killed(programs, f"ProcessGroup({other.pid})\nassert not guard._told\nprint(os.getpid())\n", 1)
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_one_that_is_over_takes_no_other_from_the_guard(programs: list[Program]) -> None:
    body = (
        "first, one = begin('sleep 300 & echo $!; wait')\nsecond, two = begin('sleep 300')\n"
        "guard.forget(two.pgid)\nos.killpg(two.pgid, 9)\nprint(named(first))\n"
    )
    _, (pid,) = killed(programs, body, 1)
    assert is_gone(pid)


def test_a_guard_that_was_killed_is_replaced_and_told_again(programs: list[Program]) -> None:
    body = (
        "popen, _ = begin('sleep 300 & echo $!; wait')\npid = named(popen)\n"
        "guard._running.kill(); guard._running.wait()\nguard.start()\n"
        "print(pid, guard._running.pid, sep='\\n')\n"
    )
    _, pids = killed(programs, body, 2)
    assert all(is_gone(pid) for pid in pids)


def test_it_ends_with_the_program_and_is_waited_for(programs: list[Program]) -> None:
    program = Program("")
    programs.append(program)
    assert program.process.stdin is not None
    program.process.stdin.close()
    assert program.process.wait() == 0
    assert not Path(f"/proc/{program.guard}").exists()


def test_it_holds_nothing_of_the_program_and_heeds_no_signal_of_a_terminal(programs: list[Program]) -> None:
    program = Program("os.dup2(1, 77)\n")
    programs.append(program)
    held = {str(link.readlink()) for link in Path(f"/proc/{program.guard}/fd").iterdir()}
    assert {link for link in held if not link.startswith("pipe:")} == {"/dev/null"}
    assert len(held) == 2
    assert Path(f"/proc/{program.guard}/environ").read_bytes() == b""
    status = Path(f"/proc/{program.guard}/status")
    mask = re.compile(r"SigIgn:\s*(\w+)")  # until it has come to listening
    wait_until(lambda: (found := mask.search(status.read_text())) and int(found[1], 16) & 0x4007 == 0x4007)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        os.kill(program.guard, number)
    time.sleep(0.1)
    assert os.getsid(program.guard) == program.guard
    assert is_running(program.guard)
