"""The launcher: what it starts dies with its parent and finds a clean slate; a start that fails is told."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dsh.capabilities.launcher import EXIT_CODE, PREFIX, command, read_status

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the parent-death signal is Linux's")


def start(words: list[str], **more: object) -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(words, capture_output=True, timeout=30, **more)  # type: ignore[call-overload,no-any-return]


def with_status(argv: list[str]) -> tuple["subprocess.CompletedProcess[bytes]", bytes]:
    reading, writing = os.pipe()
    done = start(command(argv, status_fd=writing), pass_fds=(writing,))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        return done, pipe.read()


def test_the_program_gets_its_words_its_exit_code_and_nothing_on_standard_error() -> None:
    done, status = with_status(["bash", "-c", 'printf "%s" "$1"; exit 3', "x", "a b\n--"])

    assert (done.stdout, done.stderr, done.returncode) == (b"a b\n--", b"", 3)
    assert read_status(status) is None


def test_the_program_finds_the_environment_and_the_signals_as_they_were() -> None:
    bare = {"PATH": os.environ["PATH"], "ONLY": "this"}
    done = start(command(["bash", "-c", "env; grep SigIgn /proc/self/status"]), env=bare)
    plain = start(["bash", "-c", "env; grep SigIgn /proc/self/status"], env=bare)

    assert done.stdout == plain.stdout


@pytest.mark.parametrize("argv", [["/no/such/program"], ["no-such-program-anywhere"], [str(Path(__file__))]])
def test_a_program_that_cannot_be_started_is_told_by_the_status_alone(argv: list[str]) -> None:
    done, status = with_status(argv)

    assert done.returncode == EXIT_CODE and done.stderr == b""
    assert argv[0] in (read_status(status) or "")


def test_without_a_status_pipe_the_failure_is_one_line_of_standard_error() -> None:
    done = start(command(["/no/such/program"]))

    assert done.returncode == EXIT_CODE
    assert done.stderr.decode().startswith(PREFIX) and done.stderr.count(b"\n") == 1


@pytest.mark.parametrize("words", [["--unheard-of"], ["--ro"], ["--status", "x", "--", "true"], [], ["--"]])
def test_options_that_cannot_be_read_start_nothing(words: list[str]) -> None:
    own = command(["true"])
    done = start([*own[: own.index("--parent")], *words])

    assert done.returncode == EXIT_CODE and done.stderr.decode().startswith(PREFIX)


def test_a_status_that_never_came_is_a_command_that_never_started() -> None:
    assert "before it had started" in (read_status(b"") or "")


def test_the_parent_that_is_already_gone_is_noticed() -> None:
    words = command(["echo", "ran"])
    words[words.index("--parent") + 1] = "1" if os.getppid() != 1 and os.getpid() != 1 else "2"

    done = start(words)

    assert done.returncode == EXIT_CODE and b"has ended" in done.stderr and done.stdout == b""


@LINUX
def test_the_program_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    middle = (
        "import subprocess, time\n"
        "from dsh.capabilities.launcher import command\n"
        "script = 'echo $$; trap \"\" TERM INT; exec sleep 60'\n"
        "child = subprocess.Popen(command(['bash', '-c', script]))\n"
        "time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", middle], stdout=subprocess.PIPE, start_new_session=True)
    assert parent.stdout is not None
    with parent.stdout:
        child = int(parent.stdout.readline())
        watch = os.pidfd_open(child)
        parent.kill()
        parent.wait()
        gone, _, _ = select.select([watch], [], [], 20)
        os.close(watch)
    left = not gone
    if left:
        os.kill(child, signal.SIGKILL)
    assert not left
