"""What became of a confined command, by the status pipe and by the words of its standard error."""

import os
from pathlib import Path
from typing import Any

import pytest

from dsh.capabilities.confined_end import MAX_STATUS_BYTES, ConfinedEnd, StatusPipe, judge, status_pipe
from dsh.capabilities.sandbox import Confined

BWRAP = Confined(
    argv=("bwrap",),
    enforcement="full",
    runner="bwrap",
    status="bwrap",
    denial_signatures=("read-only file system",),
)
LAUNCHER = Confined(
    argv=("python",),
    enforcement="partial",
    runner="landlock",
    status="launcher",
    denial_signatures=("permission denied",),
)
OWN = Confined(
    argv=("run",),
    enforcement="full",
    runner="run",
    denial_signatures=("permission denied",),
    failure_signatures=("run: ",),
)
BEGUN = b'{ "child-pid": 7, "mnt-namespace": 1 }\n'
ENDED = BEGUN + b'{ "exit-code": 1 }\n'
NOTICE = "landlock-run: partial enforcement (older Landlock ABI)"


@pytest.mark.parametrize(
    ("confined", "status", "code", "stderr", "expected"),
    [
        (BWRAP, ENDED, 1, "touch: Read-only file system", ConfinedEnd(denied=True)),
        (BWRAP, ENDED, 1, "touch: READ-ONLY FILE SYSTEM", ConfinedEnd(denied=True)),
        (BWRAP, ENDED, 1, "no such file", ConfinedEnd()),
        (BWRAP, ENDED, 1, "bwrap: what a command prints", ConfinedEnd()),
        (BWRAP, ENDED, 0, "Read-only file system", ConfinedEnd()),
        (BWRAP, BEGUN, 1, "x\nbwrap: Can't bind\ny", ConfinedEnd(failure="bwrap: Can't bind")),
        (BWRAP, b"", 1, "", ConfinedEnd(failure="it told no reason")),
        (BWRAP, b"\xff[]\n3\n\"x\"\n", 1, "", ConfinedEnd(failure="it told no reason")),
        (BWRAP, b"", 0, "", ConfinedEnd(failure="it told no reason")),
        (LAUNCHER, b"ready\n", 1, "Permission denied", ConfinedEnd(denied=True)),
        (LAUNCHER, b"ready\n", 125, "landlock-run: said the command", ConfinedEnd()),
        (LAUNCHER, b"landlock-run: cannot x\n", 125, "", ConfinedEnd(failure="cannot x")),
        (LAUNCHER, b"ready\nlandlock-run: cannot y\n", 125, "", ConfinedEnd(failure="cannot y")),
        (OWN, b"", 3, "a\nRun: broken", ConfinedEnd(failure="Run: broken")),
        (OWN, b"", 0, "run: broken", ConfinedEnd()),
        (OWN, b"", 1, "Permission denied", ConfinedEnd(denied=True)),
        (OWN, b"", 1, "run: broken\npermission denied", ConfinedEnd(failure="run: broken")),
    ],
)  # fmt: skip
def test_the_judgement(
    confined: Confined, status: bytes, code: int, stderr: str, expected: ConfinedEnd
) -> None:
    assert judge(confined, status, exit_code=code, was_killed=False, stderr=stderr) == expected


def test_a_notice_of_weaker_walls_is_no_failure() -> None:
    """A runner that says so and then runs a command which fails: an ordinary exit code."""
    landlock = Confined(
        argv=("run",), enforcement="partial", runner="run", failure_signatures=("landlock-run: ",)
    )

    assert judge(landlock, b"", exit_code=1, was_killed=False, stderr=NOTICE) == ConfinedEnd()
    told = judge(landlock, b"", exit_code=1, was_killed=False, stderr=f"{NOTICE}\n{NOTICE}!")
    assert told.failure == f"{NOTICE}!"


@pytest.mark.parametrize("confined", [BWRAP, LAUNCHER, OWN])
@pytest.mark.parametrize(
    "how", [{"exit_code": None, "was_killed": False}, {"exit_code": 1, "was_killed": True}]
)
def test_what_was_killed_was_neither_refused_nor_did_its_runner_fail(confined: Confined, how: Any) -> None:
    assert (
        judge(confined, b"", stderr="run: Read-only file system, permission denied", **how) == ConfinedEnd()
    )


def test_the_pipe_gives_what_was_written_although_somebody_holds_it_open() -> None:
    with status_pipe() as pipe:
        held = os.dup(pipe.fd)
        os.write(held, b"one")
        assert pipe.read() == b"one"
        os.close(held)
        assert pipe.read() == b""


def test_the_pipe_takes_no_more_than_it_holds_and_leaves_no_descriptor() -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with status_pipe() as pipe:
        os.write(pipe.fd, b"x" * MAX_STATUS_BYTES)
        assert len(pipe.read()) == MAX_STATUS_BYTES
    with pytest.raises(ZeroDivisionError), status_pipe():
        raise ZeroDivisionError
    other = StatusPipe()
    other.close_writing()
    other.close_writing()
    assert other.read() == b""

    assert len(list(Path("/proc/self/fd").iterdir())) == before
