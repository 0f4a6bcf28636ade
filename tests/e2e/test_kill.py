"""Real jobs killed (SIGKILL) right at an event of their log, in both storages, and gone on with afterwards.

What was flushed is there, repair is as specified, and the row `agent-loop` resumes the session: its next
request is complete, and the new events stand behind the old ones as if nothing had been.
"""

from collections.abc import Callable
from typing import Any

import pytest

from dsh.persistence.jsonl.backend import JsonlBackend
from dsh.persistence.sqlite.backend import SqliteBackend
from dsh.persistence.view import LogView, build_view
from dsh.testing.workspace import Finished, Workspace, finish
from tests.e2e.model import Model
from tests.e2e.reply import bash, text
from tests.e2e.test_storage import logged, sent
from tests.process import is_gone, wait_until

Answering = Callable[..., Model]

KILLER = """\
import os, signal
from dsh.session.store import SESSION_DELTA, SESSION_EVENT, SESSIONS, SessionStore
inject = [SESSIONS]
flush = SessionStore.flush
async def told(self, session):
    length = session.length
    was_heard = await flush(self, session)
    with open(os.environ["TOLD"], "a") as file:
        file.write(f"{length}\\n")
    return was_heard
SessionStore.flush = told
def apply(ctx):
    def appended(event):
        if event.seq >= int(os.environ["KILL_AT"]):
            os.kill(os.getpid(), signal.SIGKILL)
    ctx.on(SESSION_EVENT, appended)
    ctx.on(SESSION_DELTA, appended)
"""
"""A row that notes how much each barrier made durable, and kills its process at one event.

Of deltas that come in one piece only the first is told; one behind it is met at the next that is.
"""

RESUMER = """\
import asyncio
from dsh.agent.contract import AGENT_CONFIG_START_FAILED
from dsh.agent.registry import AGENTS
from dsh.capabilities.launch import APP_EXIT, BOOT
from dsh.session.message import user_message
from dsh.session.store import SESSIONS
inject = [BOOT, APP_EXIT, AGENTS, SESSIONS]
def apply(ctx):
    ctx.on(AGENT_CONFIG_START_FAILED, lambda failed: ctx.use(APP_EXIT)(9))
    ctx.spawn(main(ctx), "the next task")
async def main(ctx):
    await ctx.use(BOOT).ready()
    while not (agents := ctx.use(AGENTS).list()):
        await asyncio.sleep(0.005)
    agents[0].followup(user_message("go on"))
    await agents[0].when_idle()
    await ctx.use(SESSIONS).flush(agents[0].session)
    ctx.use(APP_EXIT)(0)
"""
AGAIN = """\
- id: agent-loop
  config:
    agents:
      - {{id: main, resumeSessionId: {id}, provider: deepseek-official, model: deepseek-chat}}
- insert:
    - {{id: resumer, name: ./resumer.py}}
"""
SQLITE = """\
- id: session-persistence-jsonl
  remove: true
- insert:
    - id: session-persistence-sqlite
      name: session-persistence-sqlite
      config: {path: !expr home('db/sessions.db')}
"""
STORAGES = ["jsonl", "sqlite"]
EVENTS = 60
"""How many events the job has that is killed; a test of its own says so."""


def job() -> list[dict[str, Any]]:
    """Two calls that leave a file each, and an answer; every reply comes in pieces."""
    return [
        bash("touch one; echo done one", "c1") | {"text": ["first "] * 2, "delay_ms": 2},
        bash("touch two; echo $$ > pid; echo done two", "c2") | {"text": ["second "] * 2, "delay_ms": 2},
        text(*["last "] * 4, delay_ms=3),
    ]


UNCONFINED = {"DSH_PERMISSION_MODE": "danger-full-access"}
"""Numbers of processes are then the same for a command and for whoever looks for it."""


class Killed:
    """A job in a workspace that was killed at one event, and what it has left."""

    def __init__(self, space: Workspace, storage: str) -> None:
        self.space = space
        self.storage = storage
        self.told = space.root / "told"
        (space.home / "dsh.patch.yml").write_text(SQLITE if storage == "sqlite" else "[]\n")
        space.write("killer.py", KILLER)
        space.write("killer.yml", "- insert:\n    - {id: killer, name: ./killer.py}\n")

    def run(self, at: int) -> int:
        env = {"KILL_AT": str(at), "TOLD": str(self.told), **UNCONFINED}
        process = self.space.start("run", "--patch", "killer.yml", "do it", env=env)
        return finish(process).code

    def durable(self) -> int:
        """How many events were durable when the last barrier returned."""
        return max(map(int, self.told.read_text().split()), default=0) if self.told.exists() else 0

    def backend(self) -> JsonlBackend | SqliteBackend:
        if self.storage == "jsonl":
            return JsonlBackend(self.space.home / "sessions")
        return SqliteBackend(self.space.home / "db" / "sessions.db")

    def view(self) -> LogView | None:
        """What another process finds of the one session."""
        backend = self.backend()
        try:
            for session_id in backend.ids():
                stored = backend.load(session_id)
                assert stored is not None
                return build_view(stored)
            return None
        finally:
            backend.close()

    def made(self, name: str) -> bool:
        return (self.space.work / name).exists()

    def resume(self, session_id: str) -> Finished:
        """Let the row `agent-loop` go on with the session in another process."""
        folder = self.space.home / "profiles" / "again"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "profile.yml").write_text("bundles: [base]\n")
        (folder / "resumer.py").write_text(RESUMER)
        (folder / "dsh.patch.yml").write_text(AGAIN.format(id=session_id))
        return self.space.run("--profile", "again")


def facts(view: LogView, stop: int) -> list[dict[str, Any]]:
    return [event.to_json() for event in view.events(0, stop)]


def check_points(killed: Killed, view: LogView, bodies: list[dict[str, Any]]) -> None:
    """What has to be stored by what the world has seen of the job (`spec/persistence.md` §5)."""
    assert view.stored_length >= killed.durable()
    messages: list[Any] = [*view.derive_messages()]
    if bodies:  # before a request its prompt and everything else in it is durable
        request = list(sent(bodies[-1]))
        assert logged(messages)[: len(request)] == request
    results = {e.data["message"]["source"]["callId"]: e for e in view.events() if e.type == "tool/result"}
    stored = {e.data["callId"] for e in view.events(0, view.stored_length) if e.type == "tool/call"}
    for name, call_id, number in (("one", "c1", 1), ("two", "c2", 2)):
        if killed.made(name):  # before a call is carried out it is durable
            assert call_id in stored
            code = results[call_id].data.get("error", {}).get("code")
            is_stored = results[call_id].seq < view.stored_length
            assert code == (None if is_stored else "TOOL_OUTCOME_UNKNOWN")
        if len(bodies) > number:  # before the next request its result is
            assert results[call_id].seq < view.stored_length


def check_repair(view: LogView) -> None:
    """Closers give every call its result, then end the step and the turn; nothing else is made up."""
    closers = list(view.events(view.stored_length))
    types = [event.type for event in closers]
    assert types == sorted(types, key=["tool/result", "user/message", "step/end", "turn/end"].index)
    if closers:
        assert closers[-1].data["reason"] == {"kind": "interrupted"}
    assert view.open_turn is None and view.irregularities == []


def check_request(body: dict[str, Any]) -> None:
    """Every call of an assistant message has exactly one result, right behind it."""
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            continue
        assert not waiting
        waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert not waiting


def leftovers(space: Workspace) -> list[str]:
    """Files beside the stored sessions that nobody will ever read."""
    return [path.name for path in space.home.rglob("*") if path.name.endswith((".tmp", "-journal"))]


def check_job(killed: Killed, model: Model, at: int) -> None:
    code = killed.run(at)

    assert code == (-9 if at < EVENTS else 0)
    bodies = model.bodies()
    view = killed.view()
    if view is None:
        assert (bodies, killed.durable()) == ([], 0)
        return
    assert [event.seq for event in view.events()] == list(range(view.length))
    assert code or not view.needs_repair
    check_points(killed, view, bodies)
    check_repair(view)
    if killed.made("pid") and (pid := (killed.space.work / "pid").read_text().strip()):
        assert is_gone(int(pid))

    done = killed.resume(view.header.id)

    assert (done.code, done.stdout, done.stderr) == (0, "", "")
    after = killed.view()
    assert after is not None and not after.needs_repair and after.irregularities == []
    assert facts(after, view.length) == facts(view, view.length)
    requests = model.bodies()[len(bodies) :]
    assert requests and "go on" in sent(requests[-1])  # behind a prompt that was waiting
    for request in requests:
        check_request(request)
    assert after.last("turn/end").data["reason"] == {"kind": "completed"}  # type: ignore[union-attr]
    verified = killed.space.run("sessions", "verify", view.header.id, "--json")
    assert (verified.code, verified.stderr) == (0, "")
    assert leftovers(killed.space) == []


def sample(storage: str) -> range:
    """Where the job is killed: every seventh event, at other ones in each storage."""
    return range(1 + 3 * STORAGES.index(storage), EVENTS, 7)


@pytest.mark.slow
@pytest.mark.parametrize(("storage", "at"), [(storage, at) for storage in STORAGES for at in sample(storage)])
def test_a_job_killed_at_an_event_keeps_what_was_flushed_and_goes_on(
    space: Workspace, answering: Answering, storage: str, at: int
) -> None:
    check_job(Killed(space, storage), answering(*job(), text("ok")), at)


def test_the_job_has_that_many_events(space: Workspace, answering: Answering) -> None:
    answering(*job())
    killed = Killed(space, "jsonl")
    assert killed.run(10**6) == 0
    view = killed.view()
    assert view is not None
    assert view.length == EVENTS


@pytest.mark.parametrize("storage", STORAGES)
def test_a_second_process_is_refused_and_nothing_of_either_is_lost(
    space: Workspace, answering: Answering, storage: str
) -> None:
    model = answering(text(*["word "] * 60, delay_ms=25), text("ok"))
    job = Killed(space, storage)
    process = space.start("run", "do it")
    wait_until(lambda: model.bodies() and job.view())
    view = job.view()
    assert view is not None

    second = job.resume(view.header.id)

    assert second.code == 9 and process.poll() is None
    assert f"process {process.pid} on host" in second.stderr and "Traceback" not in second.stderr
    assert len(model.bodies()) == 1
    assert finish(process).code == 0
    first = job.view()
    assert first is not None and not first.needs_repair
    assert job.resume(view.header.id).code == 0
    after = job.view()
    assert after is not None and facts(after, first.length) == facts(first, first.length)
    assert [event.data["turn"] for event in after.events() if event.type == "turn/end"] == [1, 2]
