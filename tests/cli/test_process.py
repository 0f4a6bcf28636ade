"""Tests of the watchdog: a fake clock for its rules, real processes for real signals."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from dsh.cli.process import HEARTBEAT_S, LIMIT_S, Watchdog
from tests.aio import aio


def _fail() -> None:
    raise ZeroDivisionError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


made: list[Watchdog] = []


@pytest.fixture(autouse=True)
def closed_sockets() -> Iterator[None]:
    """A watchdog lives as long as its process; these end with their test."""
    yield
    while made:
        dog = made.pop()
        dog._wake.close()
        dog._poke.close()


def watchdog() -> tuple[Watchdog, Clock, list[int]]:
    ended: list[int] = []
    clock = Clock()
    made.append(Watchdog(end=ended.append, clock=clock))
    return made[-1], clock, ended


def test_signal_before_the_loop_ends_at_once() -> None:
    dog, _, ended = watchdog()
    dog.deliver(signal.SIGTERM)
    assert ended == [143]


@aio
async def test_first_signal_is_handed_to_the_loop() -> None:
    dog, _, ended = watchdog()
    seen: list[int] = []
    dog.attach(asyncio.get_running_loop(), seen.append)

    dog.deliver(signal.SIGINT)
    await asyncio.sleep(0)

    assert (seen, ended) == ([signal.SIGINT], [])
    dog.drain(130)


@aio
async def test_second_signal_ends_at_once_with_its_own_code() -> None:
    dog, _, ended = watchdog()
    dog.attach(asyncio.get_running_loop(), lambda number: None)

    dog.deliver(signal.SIGINT)
    dog.deliver(signal.SIGTERM)

    assert ended == [143]
    dog.drain(130)
    await asyncio.sleep(0)


@aio
async def test_silent_loop_is_ended_after_the_heartbeat_bound() -> None:
    dog, clock, ended = watchdog()
    dog.attach(asyncio.get_running_loop(), lambda number: None)
    dog.deliver(signal.SIGINT)

    clock.now += HEARTBEAT_S
    dog.check()
    assert ended == []
    clock.now += 0.1
    dog.check()
    assert ended == [130]
    dog.drain(130)
    await asyncio.sleep(0)


@aio
async def test_beating_loop_is_ended_after_the_limit_in_any_case() -> None:
    dog, clock, ended = watchdog()
    dog.attach(asyncio.get_running_loop(), lambda number: None)
    dog.deliver(signal.SIGTERM)

    clock.now += LIMIT_S - 0.1
    await asyncio.sleep(0.3)  # the loop beats
    dog.check()
    assert ended == []
    clock.now += 0.2
    dog.check()
    assert ended == [143]
    dog.drain(143)


@aio
async def test_a_guarded_loop_that_is_silent_is_ended_with_the_code_of_the_guard() -> None:
    dog, clock, ended = watchdog()
    said: list[str] = []
    dog.attach(asyncio.get_running_loop(), lambda number: None)

    with dog.guarded(20.0, 3, lambda: said.append("blocked")):
        clock.now += 20.0
        dog.check()
        assert (ended, said) == ([], [])
        clock.now += 0.1
        dog.check()
    assert (ended, said) == ([3], ["blocked"])
    clock.now += 1e6
    dog.check()
    assert ended == [3]


@aio
async def test_a_guarded_loop_that_beats_may_take_its_time_and_beats_no_longer_than_it_is_guarded() -> None:
    dog, clock, ended = watchdog()
    loop = asyncio.get_running_loop()
    dog.attach(loop, lambda number: None)

    with dog.guarded(20.0, 3, lambda: None):
        for _ in range(3):
            clock.now += 15.0
            await asyncio.sleep(0.3)
            dog.check()
    await asyncio.sleep(0.3)
    assert ended == []
    assert getattr(loop, "_scheduled") == []  # noqa: B009 -- nothing wakes an idle process


@aio
async def test_a_signal_counts_more_than_a_guard_and_words_that_fail_do_not_keep_the_process() -> None:
    dog, clock, ended = watchdog()
    dog.attach(asyncio.get_running_loop(), lambda number: None)

    with dog.guarded(1.0, 3, _fail):
        dog.deliver(signal.SIGTERM)
        clock.now += HEARTBEAT_S + 0.1
        dog.check()
        assert ended == [143]
    other, clock, ended = watchdog()
    other.attach(asyncio.get_running_loop(), lambda number: None)
    with other.guarded(1.0, 3, _fail):
        clock.now += 1.1
        with pytest.raises(ZeroDivisionError):
            other.check()
        assert ended == [3]
    dog.drain(143)


def test_nothing_is_ended_without_a_signal() -> None:
    dog, clock, ended = watchdog()
    clock.now += 1e6
    dog.check()
    assert ended == []


def test_draining_is_bounded_and_any_signal_ends_it() -> None:
    dog, clock, ended = watchdog()
    dog.drain(0)
    clock.now += 5.1
    dog.check()
    dog.deliver(signal.SIGINT)
    assert ended == [0, 130]


def test_last_deed_runs_before_a_forced_end() -> None:
    dog, _, ended = watchdog()
    order: list[str] = []
    dog.before_end = lambda: order.append(f"deed after {len(ended)} ends")
    dog.force(130)
    assert (order, ended) == (["deed after 0 ends"], [130])


BLOCKED = """
import asyncio, sys, time
from dsh.cli.process import Watchdog
dog = Watchdog(heartbeat_s={heartbeat_s}, limit_s={limit_s}).install()
async def live():
    dog.attach(asyncio.get_running_loop(), lambda number: print("handed", flush=True))
    print("up", flush=True)
    {body}
asyncio.run(live())
"""


def run_until_up(body: str, heartbeat_s: float = 60, limit_s: float = 60) -> subprocess.Popen[str]:
    program = BLOCKED.format(body=body, heartbeat_s=heartbeat_s, limit_s=limit_s)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_a_blocked_loop_does_not_make_the_process_immortal() -> None:
    process = run_until_up("time.sleep(60)", heartbeat_s=0.5)
    start = time.monotonic()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert time.monotonic() - start > 0.4
    assert process.communicate()[0] == ""


def test_a_loop_that_never_ends_is_ended_at_the_limit() -> None:
    process = run_until_up("await asyncio.sleep(60)", limit_s=0.5)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert process.communicate()[0] == "handed\n"


def test_second_signal_ends_a_blocked_process_at_once() -> None:
    process = run_until_up("time.sleep(60)")
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    process.communicate()
