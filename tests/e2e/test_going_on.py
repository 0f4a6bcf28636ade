"""What a run leaves waiting, however it ends, and a second process that goes on with it.

A limit, a failure, the plain end of the process and a kill keep what waits; a signal drops it.
"""

import signal
from collections.abc import Callable
from typing import Any

import pytest

from dsh.testing.workspace import Finished, Workspace, finish, log_rows, log_text
from tests.e2e.model import Model
from tests.e2e.reply import bash, failure, text
from tests.e2e.sound import errors_in
from tests.e2e.test_kill import KILLER
from tests.e2e.test_storage import sent
from tests.process import wait_until

Answering = Callable[..., Model]

QUEUE = """\
from dsh.agent.contract import AGENT_PRE_STEP
from dsh.session.message import user_message
def apply(ctx):
    async def on(payload, following):
        if payload.turn == payload.step == 1:
            payload.agent.steer(user_message("a hint"))
            payload.agent.followup(user_message("the second task"))
        return await following()
    ctx.on(AGENT_PRE_STEP, on)
"""
"""A row that gives the agent more to do while it puts its first request together."""

GOER = """\
import asyncio
from dsh.agent.registry import AGENTS
from dsh.capabilities.launch import APP_EXIT, APP_OUTPUT, BOOT
inject = [BOOT, APP_EXIT, APP_OUTPUT, AGENTS]
def apply(ctx):
    ctx.spawn(main(ctx), "go on")
async def main(ctx):
    await ctx.use(BOOT).ready()
    while not (agents := ctx.use(AGENTS).list()):
        await asyncio.sleep(0.005)
    ctx.use(APP_OUTPUT).answer(f"{agents[0].continue_pending()}\\n")
    await agents[0].when_idle()
    ctx.use(APP_EXIT)(0)
"""
AGAIN = """\
- id: agent-loop
  config:
    agents:
      - {{id: main, resumeSessionId: {id}, provider: deepseek-official, model: deepseek-chat}}
- insert:
    - {{id: goer, name: ./goer.py}}
"""


def queued(space: Workspace, *rows: str) -> list[str]:
    """The words of a run whose agent soon has more to do than its task, with these rows patched."""
    space.write("queue.py", QUEUE)
    space.write("queue.yml", "- insert: [{id: queue, name: ./queue.py}]\n" + "".join(rows))
    return ["run", "--patch", "queue.yml", "the task"]


def go_on(space: Workspace) -> Finished:
    """Another process resumes the one session and takes up what waits; it prints whether anything does."""
    [log] = space.logs()
    folder = space.home / "profiles" / "again"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "profile.yml").write_text("bundles: [base]\n")
    (folder / "goer.py").write_text(GOER)
    (folder / "dsh.patch.yml").write_text(AGAIN.format(id=log_rows(log)[0]["id"]))
    return space.run("--profile", "again")


def said(space: Workspace) -> list[str]:
    """What the user has said to the model, of the one session."""
    rows = [row["data"] for row in log_rows(space.logs()[0]) if row.get("type") == "user/message"]
    return [data["content"][0]["text"] for data in rows if data["source"]["kind"] == "user"]


TASKS = ["a hint", "the task", "the second task"]


def reasons(space: Workspace) -> list[Any]:
    return [row["data"]["reason"] for row in log_rows(space.logs()[0]) if row.get("type") == "turn/end"]


LIMIT = "- {id: headless-runner, merge: {maxSteps: 1}}\n"


@pytest.mark.parametrize(
    ("rows", "first", "code", "end"),
    [
        (LIMIT, bash("echo one"), 5, "aborted"),
        ("", failure(400, "no such model"), 1, "error"),
    ],
    ids=["limit", "failure"],
)
def test_what_a_run_leaves_waiting_is_taken_up_by_the_next_process(
    space: Workspace, answering: Answering, rows: str, first: dict[str, Any], code: int, end: str
) -> None:
    model = answering(first, text("done"))
    assert space.run(*queued(space, rows)).code == code
    assert said(space) == ["the task"]
    assert [reason["kind"] for reason in reasons(space)] == [end]
    assert errors_in(space) == []

    done = go_on(space)

    assert (done.code, done.stdout, done.stderr) == (0, "True\n", "")
    assert said(space) == ["the task", "a hint", "the second task"]
    assert reasons(space)[1:] == [{"kind": "completed"}]
    assert [words for words in sent(model.bodies()[-1]) if words in said(space)] == said(space)
    assert errors_in(space) == []
    asked = len(model.bodies())
    assert go_on(space).stdout == "False\n", "nothing is left, and nothing comes back"
    assert len(model.bodies()) == asked


def test_what_was_claimed_when_the_time_was_up_waits_for_the_next_process(
    space: Workspace, answering: Answering
) -> None:
    """The turn is cut before its first step: not even the task has entered."""
    answering(text("done"))
    slow = QUEUE.replace("payload.agent.followup", "await payload.signal.sleep(60) #")
    words = queued(space, "- {id: headless-runner, merge: {timeoutMs: 300}}\n")
    space.write("queue.py", slow)
    assert space.run(*words).code == 124
    assert said(space) == []

    done = go_on(space)

    assert (done.code, done.stdout, done.stderr) == (0, "True\n", "")
    assert said(space) == ["a hint", "the task"]
    assert errors_in(space) == []


@pytest.mark.parametrize(
    ("number", "code", "cause"),
    [
        (signal.SIGINT, 130, {"kind": "user"}),
        (signal.SIGTERM, 143, {"kind": "hook", "reason": "signal:SIGTERM"}),
    ],
    ids=["SIGINT", "SIGTERM"],
)
def test_a_signal_drops_what_waits(
    space: Workspace, answering: Answering, number: signal.Signals, code: int, cause: dict[str, str]
) -> None:
    model = answering(bash("touch begun; sleep 60"), text("never"))
    process = space.start(*queued(space))
    wait_until(lambda: (space.work / "begun").exists())
    process.send_signal(number)
    assert finish(process).code == code
    assert reasons(space) == [{"kind": "aborted", "reason": cause}]

    done = go_on(space)

    assert (done.code, done.stdout, done.stderr) == (0, "False\n", "")
    assert (said(space), len(model.bodies())) == (["the task"], 1)
    assert errors_in(space) == []


EVENTS = 54
"""How many events the killed run has by itself; a test of its own says so."""


def killed(space: Workspace, at: int) -> int:
    """The exit code of a run that is killed right at one event, at the latest when it has that many."""
    space.write("killer.py", KILLER)
    words = queued(space, "- insert: [{id: killer, name: ./killer.py}]\n")
    return space.run(*words, env={"KILL_AT": str(at), "TOLD": str(space.root / "told")}).code


def test_the_killed_run_has_that_many_events(space: Workspace, answering: Answering) -> None:
    answering(bash("echo one"), text("done"))
    assert killed(space, 10**6) == 0
    assert log_rows(space.logs()[0])[-1]["seq"] == EVENTS - 1


@pytest.mark.slow
@pytest.mark.parametrize("at", range(1, EVENTS, 5))
def test_a_kill_at_any_event_loses_no_message_that_was_stored_and_gives_none_twice(
    space: Workspace, answering: Answering, at: int
) -> None:
    model = answering(bash("echo one"), text("done"))
    assert killed(space, at) == -9
    stored = log_text(space.logs()[0]) if space.logs() else b""
    known = [words for words in TASKS if f'"{words}"'.encode() in stored]
    if not known:
        assert model.bodies() == []
        return

    done = go_on(space)

    assert (done.code, done.stderr) == (0, "")
    assert sorted(said(space)) == sorted(known)
    assert [words for words in sent(model.bodies()[-1]) if words in known] == said(space)
    assert errors_in(space) == []
