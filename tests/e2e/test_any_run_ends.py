"""Any run ends: plugins that misbehave in every way, signals at any moment; the exit code says how."""

import os
import pty
import random
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

from dsh.testing.workspace import Finished, Workspace, finish, log_rows
from tests.e2e.bounds import bounded
from tests.e2e.model import Model
from tests.e2e.reply import bash, text
from tests.process import wait_until

Answering = Callable[..., Model]

TOOL = """
import asyncio, os, subprocess, sys, threading, time
from dsh.tools.definition import TEXT_OUTPUT
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool

inject = [TOOLS]

async def body(args, execution):
    open("started", "w").close()
    {body}

def apply(ctx):
    ctx.use(TOOLS).register(
        typed_tool(name="odd", description="odd", parameters={{}}, output=TEXT_OUTPUT, execute=body)
    )
"""
LISTENER = """
import asyncio, sys
from dsh.agent.contract import AGENT_PRE_STEP, AGENT_STATUS
from dsh.session.store import SESSION_EVENT, SESSION_FLUSH
from dsh.tools.event import TOOLS_PRE_EXECUTE

async def foreign():
    {deed}

async def around(payload, following):
    await foreign()
    return await following()

def told(payload):
    {deed}

async def told_later(payload):
    await foreign()

def apply(ctx):
    ctx.on({event}, {listener})
"""
NEVER = """
import asyncio
from dsh.agent.contract import AGENT_PRE_STEP
from dsh.tools.event import TOOLS_PRE_EXECUTE

async def never(payload, following):
    open("started", "w").close()
    await asyncio.sleep(1000)

def apply(ctx):
    ctx.on({event}, never)
"""
ODD_CALL = {"tools": [{"id": "c1", "name": "odd", "args": ["{}"]}]}


def with_plugin(space: Workspace, code: str) -> tuple[str, ...]:
    """The command line of a run with one more row, whose plugin is this code."""
    space.write("plugin.py", code)
    space.write("p.yml", "- insert:\n    - {id: odd, name: ./plugin.py}\n")
    return ("--profile", "headless", "--patch", "p.yml", "x")


def is_closed(rows: list[dict[str, Any]]) -> bool:
    """Whether every turn, step and call of the log has its end."""
    kinds = [row["type"] for row in rows]
    pairs = (("turn/start", "turn/end"), ("step/start", "step/end"), ("tool/call", "tool/result"))
    return all(kinds.count(start) == kinds.count(end) for start, end in pairs)


def rows_of(space: Workspace) -> list[dict[str, Any]]:
    return [row for log in space.logs() for row in log_rows(log)]


@pytest.mark.parametrize(
    "body",
    [
        "raise ValueError('x')",
        "raise BaseException('x')",
        "raise KeyboardInterrupt",
        "raise GeneratorExit",
        "raise asyncio.CancelledError",
        "asyncio.current_task().cancel(); await asyncio.sleep(1)",
        "sys.exit(7)",
        "return 5",
        "os.chdir('/'); return 'ok'",
        "print('noise'); os.write(1, b'raw\\n'); subprocess.run(['echo', 'child']); return 'ok'",
        "time.sleep(0.3); return 'ok'",
        "asyncio.get_running_loop().create_task(asyncio.sleep(1000)); return 'ok'",
        "threading.Thread(target=time.sleep, args=(1000,)).start(); return 'ok'",
    ],
)
def test_whatever_a_body_does_is_a_result_and_the_run_completes(
    space: Workspace, answering: Answering, body: str
) -> None:
    answering(ODD_CALL, text("done"))
    done = space.run(*with_plugin(space, TOOL.format(body=body)), timeout_s=20)
    assert (done.code, done.stdout) == (0, "done\n")
    assert "Traceback" not in done.stderr
    assert is_closed(rows_of(space))


@pytest.mark.parametrize("deed", ["sys.exit(7)", "raise asyncio.CancelledError"])
@pytest.mark.parametrize(
    ("event", "listener", "code"),
    [
        ("AGENT_STATUS", "told", 0),
        ("SESSION_EVENT", "told", 0),
        ("SESSION_EVENT", "told_later", 0),
        ("TOOLS_PRE_EXECUTE", "around", 0),
        ("AGENT_PRE_STEP", "around", 1),
        ("SESSION_FLUSH", "told_later", 1),
    ],
)
def test_a_listener_neither_ends_the_process_nor_hangs_it(
    space: Workspace, answering: Answering, event: str, listener: str, code: int, deed: str
) -> None:
    answering(bash("echo hi"), text("done"))
    plugin = LISTENER.format(event=event, listener=listener, deed=deed)
    done = space.run(*with_plugin(space, plugin), timeout_s=20)
    assert done.code == code
    assert "Traceback" not in done.stderr
    assert is_closed(rows_of(space))


def signalled(space: Workspace, words: tuple[str, ...], number: signal.Signals) -> Finished:
    """Start a run, and send the signal once its plugin is at work."""
    process = at_work(space, words)
    process.send_signal(number)
    return finish(process)


def at_work(space: Workspace, words: tuple[str, ...]) -> "subprocess.Popen[bytes]":
    """Start a run whose plugin tells when it is at work, and wait for that."""
    process = space.start(*words)
    wait_until((space.work / "started").exists, process)
    return process


@pytest.mark.parametrize("event", ["AGENT_PRE_STEP", "TOOLS_PRE_EXECUTE"])
def test_a_listener_that_never_answers_is_given_up_after_a_signal_and_the_turn_is_closed(
    space: Workspace, answering: Answering, event: str
) -> None:
    space.program = bounded(grace_s=0.5)
    answering(bash("echo hi"), text("done"))
    plugin = NEVER.format(event=event)
    done = signalled(space, with_plugin(space, plugin), signal.SIGTERM)
    assert (done.code, done.stdout) == (143, "\n")
    assert "was given up" in done.stderr
    rows = rows_of(space)
    assert is_closed(rows)
    assert rows[-1]["data"]["reason"]["reason"] == {"kind": "hook", "reason": "signal:SIGTERM"}


@pytest.mark.parametrize("body", ["time.sleep(1000)", "await asyncio.sleep(1000)"])
def test_a_body_that_never_ends_is_left_after_a_signal(
    space: Workspace, answering: Answering, body: str
) -> None:
    space.program = bounded(grace_s=0.5, heartbeat_s=1)
    answering(ODD_CALL, text("done"))
    done = signalled(space, with_plugin(space, TOOL.format(body=body)), signal.SIGINT)
    assert done.code == 130
    assert is_closed(rows_of(space)) == (body != "time.sleep(1000)"), "what blocks the loop is for the repair"


def test_two_interrupts_end_a_blocked_run_at_once(space: Workspace, answering: Answering) -> None:
    space.program = bounded(heartbeat_s=1000, limit_s=1000)
    answering(ODD_CALL, text("done"))
    process = at_work(space, with_plugin(space, TOOL.format(body="time.sleep(1000)")))
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)  # two that come together count as one
    assert finish(process).code == 130


@pytest.mark.parametrize("keys", [b"\x03", b"\x03\x03"])
def test_ctrl_c_at_a_terminal(space: Workspace, answering: Answering, keys: bytes) -> None:
    answering(bash("touch started; sleep 321"), text("never"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(space.work)
        words = [*space.program, "run", "x"]
        os.execve(words[0], words, space.environment({}))
    wait_until((space.work / "started").exists)
    for key in keys:
        os.write(terminal, bytes([key]))
        time.sleep(0.05)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    if len(keys) == 1:
        assert is_closed(rows_of(space))


@pytest.mark.parametrize("seed", range(6))
def test_a_signal_at_any_moment_of_a_turn_closes_it(
    space: Workspace, answering: Answering, seed: int
) -> None:
    chance = random.Random(seed)
    number, code = chance.choice([(signal.SIGINT, 130), (signal.SIGTERM, 143)])
    tool_call = {**bash("sleep 0.1; echo hi"), "text": ["a ", "b "], "delay_ms": 10}
    model = answering(tool_call, text(*["x "] * 200, delay_ms=20))
    process = space.start("run", "x")
    while not model.bodies():
        time.sleep(0.005)
    time.sleep(chance.uniform(0, 0.5))
    process.send_signal(number)
    done = finish(process, timeout_s=20)
    assert done.code == code
    assert done.stderr == ""
    rows = rows_of(space)
    assert is_closed(rows)
    assert rows[-1]["type"] == "turn/end"
