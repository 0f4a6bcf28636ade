"""Listeners that misbehave, through the real program: the turn ends with a line that names who and where."""

import signal
from collections import Counter
from collections.abc import Callable

import pytest

from dsh.testing.workspace import Workspace, finish
from tests.e2e.bounds import bounded
from tests.e2e.hostile import Hostile, calls
from tests.e2e.model import Model
from tests.e2e.reply import bash, failure, text
from tests.process import wait_until

WORK = (bash("echo hi"), text("done"))
PLUGIN = """
import asyncio, sys
from dsh.agent.contract import *
from dsh.agent import contract
from dsh.agent.prompt import SYSTEM_PROMPT_ASSEMBLE
from dsh.agent.registry import AGENTS
from dsh.llm.registry import LLM_STREAM
from dsh.session.message import user_message
from dsh.session.store import *
from dsh.tools.event import *

inject = [AGENTS]

class Own(Exception):
    def __str__(self): raise ValueError

once = []

def agent():
    return ctx.use(AGENTS).list()[0]

{listeners}

def apply(context):
    global ctx
    ctx = context
    for event, listener in ({pairs},):
        ctx.on(event, listener)
"""
AROUND = "async def on(payload, following):\n    {}"
TOLD = "def on(payload):\n    {}"
ASKED = ["AGENT_PRE_STEP", "AGENT_REQUEST", "AGENT_REQUEST_ERROR", "SYSTEM_PROMPT_ASSEMBLE"]
CALLS = ["TOOLS_PRE_EXECUTE", "TOOLS_EXECUTE", "TOOLS_POST_EXECUTE"]
EMITTED = [
    *("AGENT_STATUS", "AGENT_INBOX_INSERTED", "AGENT_INBOX_CLAIMED", "AGENT_SESSION_START", "AGENT_DISPOSED"),
    *("TOOLS_RESULT", "SESSION_EVENT", "SESSION_DELTA", "SESSION_DISPOSED"),
]
NAMES = {
    **{event: event.lower().replace("_", "/", 1).replace("_", "-") for event in (*ASKED, *CALLS, *EMITTED)},
    "SYSTEM_PROMPT_ASSEMBLE": "prompt",
    "AGENT_INBOX_INSERTED": "agent/inbox/inserted",
    "AGENT_INBOX_CLAIMED": "agent/inbox/claimed",
}


@pytest.fixture
def it(space: Workspace, answering: Callable[..., Model]) -> Hostile:
    return Hostile(space, answering)


def plugin(*pairs: tuple[str, str]) -> str:
    """A plugin with these listeners: event, and code that defines `on`."""
    listeners = "\n".join(code.replace("def on(", f"def on{at}(") for at, (_, code) in enumerate(pairs))
    named = ", ".join(f"({event}, on{at})" for at, (event, _) in enumerate(pairs))
    return PLUGIN.format(listeners=listeners, pairs=named)


def replies(event: str) -> tuple[dict[str, object], ...]:
    return (failure(400, "no"), *WORK) if event == "AGENT_REQUEST_ERROR" else WORK


WRONG = (AROUND.format("await following(); return object()"), "answered object")
TWICE = AROUND.format("await following(); return await following()")


@pytest.mark.parametrize(
    ("event", "listener", "says"),
    [
        *((event, *WRONG) for event in ASKED),
        *(
            ("AGENT_REQUEST", listener, says)
            for listener, says in [
                (AROUND.format("raise Own"), "plugin.py:"),
                (AROUND.format("await following(); raise ValueError('late')"), "late ("),
                (AROUND.format("sys.exit(3)"), "raised SystemExit: 3"),
                ("def on(payload, following): raise ValueError('soon')", "soon"),
                ("def on(payload, following): return 5", "answered int"),
                ("def on(): return 5", "takes 0 positional arguments"),
                (TWICE, "called next() twice"),
            ]
        ),
    ],
)
def test_a_listener_that_fails_where_a_step_is_made_ends_the_turn_and_is_named(
    it: Hostile, event: str, listener: str, says: str
) -> None:
    done = it.run(plugin((event, listener)), *replies(event))
    assert (done.code, done.stdout) == (1, "\n")
    [line] = done.errors
    assert says in line
    assert NAMES[event] in line
    assert it.reason()["kind"] == "error"
    if "twice" in says:
        it.goes_on()


FAULTS = {
    "raise Own": "Error: Own",
    "sys.exit(3)": "it tried to end the process (exit 3)",
    "return None": "answered NoneType, expected",
    "await following(); return {'kind': 'maybe'}": "answered dict, expected",
    "await following(); return await following()": "called next() twice",
}
ONE_CALL = """
async def on(payload, following):
    if getattr(payload, "execution", payload).call_id != "c{at}":
        return await following()
    {fault}"""


def test_a_listener_that_fails_around_a_call_fails_the_call(it: Hostile) -> None:
    """Each call has a listener of its own that fails, all in one process."""
    made = [(event, fault) for event in CALLS for fault in FAULTS]
    pairs = [(event, ONE_CALL.format(at=at, fault=fault)) for at, (event, fault) in enumerate(made)]
    asked = calls(*["bash"] * len(made), arguments='{"command": "echo hi", "description": "d"}')
    done = it.run(plugin(*pairs), asked, text("done"))
    assert (done.code, done.stdout) == (0, "done\n")
    for (found, _), (_, fault) in zip(it.results(), made, strict=True):
        assert found.startswith("Error: ") and FAULTS[fault] in found


def test_listeners_that_are_only_told_spoil_nothing_and_are_named_three_times_at_most(it: Hostile) -> None:
    done = it.run(plugin(*((event, TOLD.format("raise ValueError('told')")) for event in EMITTED)), *WORK)
    assert (done.code, done.stdout) == (0, "done\n")
    named = Counter(
        line.partition(" in odd (./plugin.py) failed: ValueError: told")[0] for line in done.errors
    )
    assert named.keys() == {f"dsh: listener of {NAMES[event]}" for event in EMITTED}
    assert max(named.values()) <= 3


DEEDS = {
    "agent().cancel({'kind': 'user'})": "aborted",
    "agent().cancel({'kind': 'user'}, keep_inbox=True)": "aborted",
    "once or (once.append(1), agent().steer(user_message('more')))": "completed",
    "once or (once.append(1), agent().followup(user_message('more')))": "completed",
    "once or (once.append(1), agent().inject(user_message('more')))": "completed",
    "await agent().ctx.fiber.dispose()": "completed",
    "asyncio.create_task(agent().when_idle())": "completed",
    "agent().session.append('user/message', user_message('x'), surface='append')": "completed",
}


@pytest.mark.parametrize("event", ["AGENT_PRE_STEP", "TOOLS_PRE_EXECUTE"])
@pytest.mark.parametrize("deed", DEEDS)
def test_what_listeners_do_to_the_agent_from_inside(it: Hostile, event: str, deed: str) -> None:
    done = it.run(plugin((event, AROUND.format(f"{deed}; return await following()"))), *WORK)
    if "append(" in deed and "user/message" in deed and event == "AGENT_PRE_STEP":
        assert it.reason()["kind"] in ("completed", "error")
        return
    assert it.reason()["kind"] == DEEDS[deed], done
    assert done.code == (0 if DEEDS[deed] == "completed" else 1)
    assert len(done.errors) == done.code
    if event == "TOOLS_PRE_EXECUTE":
        it.goes_on()


@pytest.mark.parametrize("deed", ["append('turn/start', {'turn': 9})", "append('nope', {})"])
def test_an_observer_that_appends_is_refused_and_named(it: Hostile, deed: str) -> None:
    events = ("SESSION_EVENT", "AGENT_INBOX_CLAIMED", "AGENT_STATUS")
    done = it.run(plugin(*((event, TOLD.format(f"agent().session.{deed}")) for event in events)), *WORK)
    assert (done.code, done.stdout) == (0, "done\n")
    for event in events:
        assert f"dsh: listener of {NAMES[event]} in odd (./plugin.py) failed: " in done.stderr


@pytest.mark.parametrize(
    ("listener", "says"),
    [
        ("def on(payload): raise ValueError('no end')", "no end (a listener of agent/turn-stopping, "),
        ("async def on(payload): raise Own", "(a listener of agent/turn-stopping, "),
        ("def on(payload): sys.exit(3)", "a listener of agent/turn-stopping raised SystemExit: 3"),
    ],
)
def test_a_listener_of_the_end_of_a_turn_that_fails_keeps_the_answer(
    it: Hostile, listener: str, says: str
) -> None:
    done = it.run(plugin(("AGENT_TURN_STOPPING", listener)), *WORK)
    assert (done.code, done.stdout) == (1, "done\n")
    [line] = done.errors
    assert says in line
    it.goes_on()


@pytest.mark.parametrize(
    ("listener", "says"),
    [
        ("def on(payload, following): raise ValueError('no stream')", "no stream (the stream of route "),
        ("def on(payload, following): return 5", "the stream of route "),
        ("async def on(payload, following): return 5", "the stream of route "),
        (
            "async def on(payload, following):\n    for chunk in (1, 'x', None): yield chunk",
            "assistant/chunk: data.chunk: expected `object`, got `int`",
        ),
        (
            "async def on(payload, following):\n    return\n    yield",
            "the model stream ended without a finish chunk",
        ),
    ],
)
def test_a_listener_that_makes_no_stream_ends_the_turn(it: Hostile, listener: str, says: str) -> None:
    done = it.run(plugin(("LLM_STREAM", listener)), *WORK)
    assert (done.code, done.stdout) == (1, "\n")
    assert says in done.stderr
    it.goes_on()


HANGS = AROUND.format("open('started', 'w').close(); await asyncio.sleep(1000)")
ALL_THAT_HANG = [*ASKED, *CALLS, "AGENT_TURN_STOPPING"]


@pytest.mark.parametrize("event", ALL_THAT_HANG)
def test_a_listener_that_never_answers_is_given_up_after_a_signal_and_everything_is_closed(
    it: Hostile, event: str
) -> None:
    it.space.program = bounded(grace_s=0.3)
    listener = HANGS.replace(", following", "") if event == "AGENT_TURN_STOPPING" else HANGS
    process = it.space.start(*it.words(plugin((event, listener)), *replies(event)))
    wait_until((it.space.work / "started").exists, process)
    process.send_signal(signal.SIGTERM)
    done = finish(process)
    it.check(done)
    assert done.code == 143
    assert "was given up" in done.stderr
    assert it.reason() == {"kind": "aborted", "reason": {"kind": "hook", "reason": "signal:SIGTERM"}}
    if event == "TOOLS_EXECUTE":
        it.goes_on()
