"""Groups of processes: who is alive, whose number it is, and the last resort."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dsh.capabilities import process_group
from dsh.capabilities.process_group import ProcessGroup, ProcessSession
from tests.process import is_gone

Popen = subprocess.Popen[bytes]
Start = Callable[..., Popen]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start children that lead groups of their own. Nothing of them outlives the test."""
    started: list[Popen] = []

    def child(*argv: str) -> Popen:
        started.append(subprocess.Popen(argv, start_new_session=True, stdout=subprocess.PIPE))
        return started[-1]

    yield child
    process_group.kill_all()
    for process in started:
        process.kill()  # a test may have its group taken for another's
        process.communicate()
    for group in process_group.live():
        group.leader_reaped = True
        group.is_alive()


def zombie(process: Popen) -> None:
    """Wait until the child is dead, but leave it to be reaped."""
    assert is_gone(process.pid)


def test_a_running_child_is_alive_and_tracked_until_it_was_seen_gone(start: Start) -> None:
    process = start("sleep", "60")
    group = ProcessGroup(process.pid)
    assert group.is_alive()
    assert process.pid in {group.pgid for group in process_group.live()}

    group.signal(signal.SIGKILL)
    process.wait(60)
    group.leader_reaped = True

    assert not group.is_alive()
    assert group.gone
    assert process.pid not in {group.pgid for group in process_group.live()}


def test_a_group_of_zombies_is_gone(start: Start) -> None:
    process = start("true")
    zombie(process)

    assert not ProcessGroup(process.pid).is_alive()


def test_an_empty_or_missing_list_of_processes_makes_nobody_look_dead(tmp_path: Path, start: Start) -> None:
    process = start("sleep", "60")

    assert ProcessGroup(process.pid, proc=str(tmp_path)).is_alive()
    assert ProcessGroup(process.pid, proc=str(tmp_path / "missing")).is_alive()


def test_a_number_that_others_got_meanwhile_is_not_signalled(start: Start) -> None:
    """Once the leader was waited for, a process with its number is a stranger."""
    stranger = start("sleep", "60")
    group = ProcessGroup(stranger.pid)
    group.leader_reaped = True

    group.signal(signal.SIGKILL)

    assert group.gone
    assert stranger.poll() is None
    assert ProcessGroup(stranger.pid).is_alive()


def test_a_chain_of_forks_does_not_slip_through_a_look(start: Start) -> None:
    """Each link lives for half a millisecond; some link is always there."""
    chain = "import os, time\nwhile True:\n time.sleep(0.0005)\n if os.fork(): os._exit(0)"
    process = start(sys.executable, "-c", f"print(flush=True)\n{chain}")
    assert process.stdout is not None
    process.stdout.readline()
    process.wait(60)
    group = ProcessGroup(process.pid)
    group.leader_reaped = True

    assert all(group.is_alive() for _ in range(40))


def test_kill_all_ends_every_tracked_group(start: Start) -> None:
    process = start("sleep", "60")
    ProcessGroup(process.pid)

    process_group.kill_all()

    assert process.wait(60) == -signal.SIGKILL


def test_a_session_holds_every_group_of_its_own(start: Start) -> None:
    process = start("bash", "-c", "set -m; sleep 300 & sleep 301 & echo $!; wait")
    assert process.stdout is not None
    of_a_job = int(process.stdout.readline())
    session = ProcessSession(process.pid)
    members = session.members()
    assert members is not None
    assert len({member.group for member in members}) == 3

    session.signal(signal.SIGKILL)

    assert is_gone(of_a_job)
    zombie(process)
    assert not session.is_alive()
    assert session.gone


def test_a_session_whose_number_is_another_process_s_is_gone(start: Start) -> None:
    process = start("sleep", "60")
    session = ProcessSession(process.pid)
    session.leader_reaped = True  # as if the number had been given away

    session.signal(signal.SIGKILL)

    assert process.poll() is None
    assert session.gone


def test_a_session_that_the_system_does_not_show_is_looked_at_by_its_leader(
    start: Start, tmp_path: Path
) -> None:
    process = start("sleep", "60")
    session = ProcessSession(process.pid, proc=str(tmp_path / "none"))

    assert session.is_alive()
    session.signal(signal.SIGKILL)

    assert is_gone(process.pid)
