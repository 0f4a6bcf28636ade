"""Tools that misbehave, through the real program: each call has its result, and the run ends as it should."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from dsh.testing.workspace import Workspace, finish
from tests.e2e.bounds import bounded
from tests.e2e.hostile import Hostile, calls, tools
from tests.e2e.model import Model
from tests.e2e.reply import text
from tests.process import is_gone, wait_until

DONE = text("done")
IGNORES = """open("started", "w").close()
while True:
    try: await asyncio.sleep(1000)
    except asyncio.CancelledError: pass"""


@pytest.fixture
def it(space: Workspace, answering: Callable[..., Model]) -> Hostile:
    return Hostile(space, answering)


RAISED = {
    "raise Own": "Error: Own",
    "raise ValueError": "Error: ValueError",
    "raise Rare": "it raised Rare: its text cannot be had (SystemExit)",
    "raise KeyboardInterrupt": "it raised KeyboardInterrupt",
    "raise GeneratorExit": "it raised GeneratorExit",
    "raise asyncio.CancelledError": "a task that it waited for was cancelled",
    "asyncio.current_task().cancel(); await asyncio.sleep(1)": "a task that it waited for was cancelled",
    "asyncio.current_task().cancel()": "cancelled",
    "exit(3)": "it tried to end the process (exit 3)",
    "raise StopIteration": "coroutine raised StopIteration",
    "raise ExceptionGroup('g', [ValueError('a'), ExceptionGroup('h', [OSError('b')])])": "g [a; h [b]]",
    "raise BaseExceptionGroup('g', [KeyboardInterrupt(), ValueError('b')])": "g [KeyboardInterrupt; b]",
    "error = ValueError('me'); error.__cause__ = error; raise error": "Error: me",
    "raise ValueError('x' * 10_000_000)": "xxx … (10000000 characters)",
    "raise ValueError(chr(0xd800) + '!')": "Error: \ufffd!",
    "f = lambda: f(); f()": "maximum recursion depth exceeded",
    "asyncio.run(asyncio.sleep(0))": "asyncio.run() cannot be called from a running event loop",
}


def test_whatever_tools_raise_is_told_to_the_model(it: Hostile) -> None:
    names = [f"t{number}" for number in range(len(RAISED))]
    done = it.run(tools(*RAISED), calls(*names), DONE)
    assert (done.code, done.stdout) == (0, "done\n")
    for (found, code), says in zip(it.results(), RAISED.values(), strict=True):
        assert found.startswith("Error: ") and says in found[-300:]
        assert len(found) < 17_000
        assert code is None
    it.goes_on()


RETURNED = {
    "return b'x'": "found a value of type bytes",
    "return float('nan')": "found the number nan",
    "return {1: 2}": "found a key of type int",
    "return {'a': {1}}": "value.a: found a value of type set",
    "return object()": "found a value of type object",
    "return type('S', (str,), {'__str__': None})('x')": "found a value of type S",
    "made = []; made.append(made); return made": "found a cycle",
    "return deep(100_000)": "levels of nesting",
    "return 10 ** 5000": "cannot show its value",
    "return user_message": "found a value of type function",
}


def test_what_tools_return_that_is_no_json_is_a_failure_that_says_where(it: Hostile) -> None:
    names = [f"t{number}" for number in range(len(RETURNED))]
    code = tools(*RETURNED, output="ToolOutput({}, lambda args, value: str(value))")
    done = it.run(code, calls(*names), DONE)
    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    for (found, error), says in zip(it.results(), RETURNED.values(), strict=True):
        assert says in found
        assert error == "INVALID_TOOL_OUTPUT"
    it.goes_on()


def test_empty_and_huge_and_odd_texts_reach_the_model_in_a_valid_request(it: Hostile) -> None:
    bodies = ("return ''", "return ' \\n'", "return 'x' * 5_000_000", "return chr(0xdfff)", "return None")
    done = it.run(tools(*bodies), calls(*(f"t{at}" for at in range(len(bodies)))), DONE)
    assert (done.code, done.stdout) == (0, "done\n")
    sent = [m["content"] for m in it.model.bodies()[-1]["messages"] if m["role"] == "tool"]
    assert sent[:2] == ["(no output)"] * 2
    assert len(sent[2]) <= 50_000 and "bytes left out" in sent[2]
    assert sent[3] == "\ufffd"
    assert '"value" must be a string' in sent[4]


DEEDS = [
    "os.close(1); sys.stdout.close(); sys.stdout = None",
    "os.chdir('/')",
    "os.environ.clear()",
    "asyncio.get_running_loop().stop()",
    "sys.setrecursionlimit(80)",
    "signal.set_wakeup_fd(-1)",
    "execution.agent.followup({'id': 1})",
    "execution.agent.cancel({'kind': object()})",
    "execution.session.append('turn/end', {'turn': 1, 'reason': {'kind': 'completed'}})",
    "execution.defer_context('junk')",
    "same = user_message('q'); execution.defer_context(same); execution.defer_context(same)",
    "asyncio.create_task(asyncio.sleep(1000))",
    "threading.Thread(target=time.sleep, args=(1000,)).start()",
    "threading.Thread(target=lambda: 1 / 0).start(); await asyncio.sleep(0.05)",
    "type('X', (), {'__del__': lambda self: 1 / 0})()",
    "await execution.agent.ctx.fiber.dispose()",
]


def test_what_tools_do_to_the_process_and_the_agent_spoils_no_run(it: Hostile) -> None:
    """All in one process, one after the other."""
    bodies = [f"{deed}\nreturn 'ok'" for deed in DEEDS]
    done = it.run(tools(*bodies), calls(*(f"t{at}" for at in range(len(bodies)))), DONE)
    assert (done.code, done.stdout) == (0, "done\n")
    refused = {6, 7, 8, 9}
    assert [at for at, (found, _) in enumerate(it.results()) if found != "ok"] == sorted(refused)
    assert [line.partition(":")[2].split(":")[0].strip() for line in done.errors] == [
        "a message of tool t10 is dropped",
        "thread Thread-2 (<lambda>) failed",
        "an error that nobody can handle, in t14.<locals>.<lambda>",
    ]
    it.goes_on()


@pytest.mark.parametrize(
    "start",
    [
        "subprocess.Popen(['sleep', '300'])",
        "subprocess.Popen(['sleep', '300'], start_new_session=True)",
        "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; sleep 300; sleep 300'])",
    ],
)
def test_a_process_that_a_tool_leaves_behind_ends_with_the_run(it: Hostile, start: str) -> None:
    body = f"left = {start}; await asyncio.sleep(0.1); open('pid', 'w').write(str(left.pid)); return 'ok'"
    done = it.run(tools(body), calls("t0"), DONE)
    assert (done.code, done.stdout) == (0, "done\n")
    pid = (it.space.work / "pid").read_text()
    assert f"(pid {pid}) running; it was ended" in done.stderr
    assert is_gone(int(pid), 5)


def test_the_signal_for_a_copy_of_the_process_is_none_for_the_run(it: Hostile) -> None:
    body = "pid = os.fork()\nif not pid: time.sleep(300)\nos.kill(pid, 15); os.waitpid(pid, 0); return 'ok'"
    done = it.run(tools(body), calls("t0"), DONE)
    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")


@pytest.mark.parametrize(
    ("deed", "says"),
    [
        ("asyncio.get_running_loop().call_soon(sys.exit, 4)", "SystemExit: 4"),
        ("asyncio.get_running_loop().call_soon(lambda: 1 / 0)", "ZeroDivisionError: division by zero ("),
        ("asyncio.create_task(late())", "KeyError: 'late' ("),
    ],
)
def test_a_task_or_callback_that_dies_alone_ends_the_run_with_its_place_and_the_turn_is_closed(
    it: Hostile, deed: str, says: str
) -> None:
    body = f"async def late(): raise KeyError('late')\n{deed}; await asyncio.sleep(1); return 'ok'"
    done = it.run(tools(body), calls("t0"), DONE)
    assert (done.code, done.stdout) == (1, "")
    [line] = done.errors
    assert line.startswith(f"dsh: fatal load failure: {says}")
    assert it.reason() == {"kind": "aborted", "reason": {"kind": "disposed"}}
    it.goes_on()


def test_a_tool_that_cancels_every_task_ends_the_run_and_the_session_goes_on(it: Hostile) -> None:
    words = it.words(tools("[task.cancel() for task in asyncio.all_tasks()]"), calls("t0"), DONE)
    done = it.space.run(*words)
    it.check(done, is_closed=False)
    assert (done.code, done.stdout) == (1, "")
    assert done.errors[0] == "dsh: a plugin has cancelled the tasks of the program itself"
    it.goes_on()


def test_an_exit_hook_that_hangs_keeps_the_process_for_a_few_seconds_only(it: Hostile) -> None:
    done = it.run(tools("import atexit; atexit.register(time.sleep, 300); return 'ok'"), calls("t0"), DONE)
    assert (done.code, done.stdout) == (0, "done\n")


def test_a_tool_that_blocks_the_loop_for_seconds_only_takes_that_long(it: Hostile) -> None:
    done = it.run(tools("time.sleep(3); return 'ok'"), calls("t0"), DONE)
    assert (done.code, done.stdout, done.stderr) == (0, "done\n", "")
    assert it.results() == [("ok", None)]


@pytest.mark.parametrize(
    ("blocks", "numbers", "code"),
    [
        ("time.sleep(30)", [signal.SIGINT], 130),
        ("while True: ...", [signal.SIGTERM], 143),
        ("time.sleep(30)", [signal.SIGINT, signal.SIGTERM], 143),
        # It keeps the watchdog from its clock: only a second signal ends it.
        ("import re; re.match('(a+)+b', 'a' * 40)", [signal.SIGTERM, signal.SIGINT], 130),
    ],
)
def test_a_tool_that_blocks_the_loop_for_long_ends_with_the_signals(
    it: Hostile, blocks: str, numbers: list[signal.Signals], code: int
) -> None:
    it.space.program = bounded(heartbeat_s=0.5 if len(numbers) == 1 else 1000, limit_s=1000)
    body = "open('started', 'w').close()\n" + blocks
    words = it.words(tools(body), calls("t0"), DONE)
    process = it.space.start(*words)
    wait_until((it.space.work / "started").exists, process)
    for number in numbers:
        process.send_signal(number)
        time.sleep(0.2)
    done = finish(process)
    assert (done.code, done.stdout, done.stderr) == (code, "", "")
    it.check(done, is_closed=False)
    it.goes_on()


@pytest.mark.parametrize(
    ("row", "more", "code"),
    [
        ("", "", 130),
        ("- {id: agent-loop, merge: {maxTurnMs: 500}}", "", 124),
        ("- {id: timeout-policy, merge: {graceMs: 200}}", ", timeout_ms=200", 0),
    ],
)
def test_a_tool_that_ignores_its_cancellation_is_given_up(
    it: Hostile, row: str, more: str, code: int
) -> None:
    it.space.program = bounded(grace_s=0.3, heartbeat_s=2)
    words = it.words(tools(IGNORES, more=more), calls("t0"), DONE, rows=f"{row}\n")
    process = it.space.start(*words)
    if code == 130:
        wait_until((it.space.work / "started").exists, process)
        os.kill(process.pid, signal.SIGINT)
    done = finish(process)
    it.check(done)
    assert done.code == code
    assert it.results()[0][1] == "TOOL_OUTCOME_UNKNOWN"
    assert "dsh: tool t0 did not end when it was told to; it was given up" in done.errors
    it.goes_on()
