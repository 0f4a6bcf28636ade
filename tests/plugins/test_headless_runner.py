"""Tests of the headless run: what is printed, in which order, with which code. The agent is scripted."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from dsh.agent.contract import Agent, AgentHandle, CancelCause, CreateAgent, ResumeAgent, RunLimits
from dsh.agent.default_model import DEFAULT_MODEL, ModelSelection
from dsh.agent.registry import AgentRegistry
from dsh.capabilities.launch import APP_EXIT, APP_INTERRUPT, APP_OUTPUT, BOOT, Interrupt
from dsh.kernel import Context
from dsh.plugins import headless_runner
from dsh.session.log import Session
from dsh.session.message import Message, assistant_message
from dsh.session.store import SESSION_FLUSH, SessionStore
from tests.aio import aio

Step = Callable[["ScriptedAgent"], Awaitable[None]]
COMPLETED = {"kind": "completed"}
SIGINT = Interrupt("SIGINT", 130, {"kind": "user"})


class ScriptedAgent:
    """An agent whose turns are functions; implements what the runner uses of `Agent`."""

    def __init__(self, session: Session, on_task: Step, warm_up: Step | None = None) -> None:
        self.id, self.session = session.id, session
        self.cancelled = asyncio.Event()
        self.cause: CancelCause | None = None
        self.tasks: list[Message] = []
        self._on_task = on_task
        self._work = asyncio.ensure_future(warm_up(self)) if warm_up else None

    def followup(self, message: Message) -> None:
        self.tasks.append(message)
        self._work = asyncio.ensure_future(self._on_task(self))

    def cancel(self, cause: CancelCause, *, keep_inbox: bool = False) -> None:
        self.cause = cause
        self.cancelled.set()

    async def when_idle(self) -> None:
        if self._work is not None:
            await asyncio.wait((self._work,))

    def turn(self, *texts: list[str], reason: dict[str, Any] | None = None) -> None:
        """Log a turn with one assistant message for each list of text blocks."""
        number = self.session.last_turn + 1
        self.session.append("turn/start", {"turn": number})
        for step, blocks in enumerate(texts, 1):
            self.session.append("step/start", {"turn": number, "step": step})
            content = [{"type": "text", "text": text} for text in blocks]
            message = assistant_message(content, provider="p", model="m")
            data = {"turn": number, "step": step, "message": message, "finish": {"kind": "stop"}}
            self.session.append("assistant/message", data, surface="append")
            self.session.append("step/end", {"turn": number, "step": step})
        self.session.append("turn/end", {"turn": number, "reason": reason or COMPLETED})


class Factory:
    """Makes scripted agents for the real registry."""

    def __init__(self, store: SessionStore, on_task: Step, warm_up: Step | None, delay_s: float) -> None:
        self._store, self._on_task, self._warm_up, self._delay_s = store, on_task, warm_up, delay_s
        self.requests: list[CreateAgent] = []
        self.agents: list[ScriptedAgent] = []

    async def create(self, owner: Context, request: CreateAgent) -> AgentHandle:
        self.requests.append(request)
        if request.signal is not None:
            await request.signal.sleep(self._delay_s)
        session, _ = self._store.create(request.session_id, cwd=request.cwd)
        agent = ScriptedAgent(session, self._on_task, self._warm_up)
        self.agents.append(agent)

        async def dispose() -> None:
            agent.cancelled.set()

        return AgentHandle(cast(Agent, agent), dispose)

    async def resume(self, owner: Context, request: ResumeAgent) -> AgentHandle:
        raise AssertionError("not used")


class Selection:
    def current_selection(self) -> ModelSelection:
        return ModelSelection("route", "model")

    async def save_selection(self, selection: ModelSelection) -> None:
        raise AssertionError("not used")


class World:
    """The runner between real session store and registry; keeps the order of its visible deeds."""

    def __init__(self, on_task: Step, *, warm_up: Step | None = None, delay_s: float = 0.0) -> None:
        self.deeds: list[tuple[str, object]] = []
        self.config: dict[str, object] = {}
        self.root = root = Context()
        self._ready = asyncio.Event()
        self.over = asyncio.Event()
        store = SessionStore(root)
        registry = AgentRegistry(root)
        self.factory = Factory(store, on_task, warm_up, delay_s)
        registry.set_factory(self.factory)
        root.provide(DEFAULT_MODEL, Selection())
        root.provide(BOOT, self)
        root.provide(APP_OUTPUT, self)
        root.provide(APP_EXIT, self._exit)
        root.on(SESSION_FLUSH, self._flush)

    async def ready(self) -> None:
        await self._ready.wait()

    def answer(self, text: str) -> None:
        self.deeds.append(("stdout", text))

    def notice(self, text: str) -> None:
        self.deeds.append(("stderr", text))

    def _exit(self, code: int) -> None:
        self.deeds.append(("exit", code))
        self.over.set()

    async def _flush(self, session: Session) -> None:
        self.deeds.append(("flush", session.length))

    async def mount(self) -> None:
        await self.root.plugin(headless_runner, {"task": "do it", **self.config})

    async def mount_impatient(self) -> None:
        def impatient(ctx: Context) -> None:
            headless_runner.start(ctx, "do it", RunLimits(), grace_s=0.05)

        await self.root.plugin(impatient, inject=headless_runner.inject)

    async def run(self, mount: Callable[[], Awaitable[None]] | None = None) -> list[tuple[str, object]]:
        await (mount or self.mount)()
        self._ready.set()
        await asyncio.wait_for(self.over.wait(), 5)
        await self.root.dispose()
        return self.deeds


def turns(*texts: list[str], reason: dict[str, Any] | None = None) -> Step:
    async def step(agent: ScriptedAgent) -> None:
        await asyncio.sleep(0.01)
        agent.turn(*texts, reason=reason)

    return step


@aio
async def test_the_log_is_flushed_then_the_answer_printed_then_the_end_asked_for() -> None:
    world = World(turns(["final", " answer"]))
    deeds = await world.run()
    assert [kind for kind, _ in deeds] == ["flush", "stdout", "exit"]
    assert deeds[1:] == [("stdout", "final answer\n"), ("exit", 0)]
    [request] = world.factory.requests
    assert request.session_id is not None and request.session_id.startswith("session-")
    assert request.cwd is not None and request.cwd.startswith("/")
    assert (request.options.provider, request.options.model) == ("route", "model")
    [task] = world.factory.agents[0].tasks
    assert task["source"] == {"kind": "user"}
    assert [dict(block) for block in task["content"]] == [{"type": "text", "text": "do it"}]


@aio
async def test_nothing_happens_before_the_audit_has_passed() -> None:
    world = World(turns(["x"]))
    await world.mount()
    await asyncio.sleep(0.02)
    assert world.factory.requests == []
    await world.root.dispose()
    assert world.deeds == []


@aio
async def test_text_of_turns_before_the_task_is_not_printed() -> None:
    deeds = await World(
        turns(reason={"kind": "aborted", "reason": {"kind": "user"}}), warm_up=turns(["early"])
    ).run()
    assert ("stdout", "\n") in deeds
    assert deeds[-1] == ("exit", 1)


@aio
async def test_the_last_text_that_is_not_empty_wins_over_all_turns() -> None:
    async def two(agent: ScriptedAgent) -> None:
        agent.turn(["first"])
        await asyncio.sleep(0.01)
        agent.turn(["final answer"], [""], [])

    assert ("stdout", "final answer\n") in await World(two).run()


@aio
async def test_white_space_counts_as_text() -> None:
    assert ("stdout", " \n") in await World(turns(["x"], [" "])).run()


@aio
async def test_a_task_that_is_complete_without_a_word_says_so_and_is_no_failure() -> None:
    deeds = await World(turns([], [" "])).run()
    [notice] = [told for kind, told in deeds if kind == "stderr"]
    assert "ended without an answer" in str(notice) and "dsh sessions show last" in str(notice)
    assert deeds[-1] == ("exit", 0)


def stopped(why: str) -> dict[str, Any]:
    return {"kind": "aborted", "reason": {"kind": "hook", "reason": why}}


@pytest.mark.parametrize(
    ("reason", "code", "words"),
    [
        ({"kind": "max-tokens"}, 1, "limit of output tokens"),
        ({"kind": "blocked"}, 1, "refused"),
        (
            stopped("limit:steps"),
            5,
            "limit of steps (headless-runner.maxSteps or agent-loop.maxStepsPerTurn)",
        ),
        (stopped("limit:tokens"), 5, "limit of tokens"),
        (stopped("limit:timeout"), 124, "limit of time"),
        (stopped("limit:repeat"), 5, "limit of equal calls in a row (repeat-tool-reminder.endTurnAt)"),
        (stopped("limit:other"), 5, "aborted (limit:other)"),
        (stopped("ask:refused"), 1, "aborted (ask:refused)"),
        ({"kind": "aborted", "reason": {"kind": "parent"}}, 1, "aborted (parent)"),
        (
            {"kind": "error", "error": {"message": "provider\nunavailable", "code": "SERVER"}},
            1,
            "dsh: SERVER: provider unavailable",
        ),
        (
            {"kind": "error", "error": {"message": "no key.", "code": "MISSING_CREDENTIAL"}},
            4,
            "dsh: MISSING_CREDENTIAL: no key.",
        ),
        (
            {"kind": "error", "error": {"message": "bad key", "code": "INVALID_CREDENTIAL"}},
            4,
            "dsh: INVALID_CREDENTIAL: bad key",
        ),
        (
            {"kind": "error", "error": {"message": "refused", "code": "AUTH", "status": 401}},
            4,
            "dsh: AUTH: refused; export a valid key, or put it into",
        ),
    ],
)
@aio
async def test_only_completed_is_success_and_one_line_says_why(
    reason: dict[str, Any], code: int, words: str
) -> None:
    deeds = await World(turns(["so far"], reason=reason)).run()
    assert [kind for kind, _ in deeds] == ["flush", "stdout", "stderr", "exit"]
    assert deeds[1] == ("stdout", "so far\n")
    assert words in str(deeds[2][1]) and "\n" not in str(deeds[2][1])
    assert deeds[3] == ("exit", code)


@aio
async def test_an_empty_turn_does_not_cover_up_one_that_failed() -> None:
    async def failed_then_woken(agent: ScriptedAgent) -> None:
        agent.turn(["so far"], reason={"kind": "max-tokens"})
        agent.turn()

    deeds = await World(failed_then_woken).run()
    assert deeds[1] == ("stdout", "so far\n") and deeds[-1] == ("exit", 1)


@aio
async def test_the_limits_of_the_row_are_those_of_the_run() -> None:
    world = World(turns(["x"]))
    world.config = {"maxSteps": 3, "maxTokensTotal": 4000, "timeoutMs": 5000}
    await world.run()
    [request] = world.factory.requests
    assert request.limits == RunLimits(steps=3, tokens=4000, duration_ms=5000)


@aio
async def test_a_row_that_goes_before_its_task_is_done_ends_the_process_and_with_the_tree_it_does_not() -> (
    None
):
    async def for_ever(agent: ScriptedAgent) -> None:
        await asyncio.Event().wait()

    world = World(for_ever)
    row = world.root.plugin(headless_runner, {"task": "do it"})
    await row
    await row.dispose()
    assert [where for where, _ in world.deeds] == ["stderr", "exit"]
    assert world.deeds[1] == ("exit", 1)
    world.deeds.clear()
    await world.mount()
    await world.root.dispose()
    assert world.deeds == []


@aio
async def test_no_turn_at_all_is_a_failure() -> None:
    async def nothing(agent: ScriptedAgent) -> None:
        await asyncio.sleep(0)

    deeds = await World(nothing).run()
    assert ("stdout", "\n") in deeds and deeds[-1] == ("exit", 1)


@aio
async def test_a_last_turn_without_an_end_is_a_failure_whatever_the_one_before_was() -> None:
    async def unclosed(agent: ScriptedAgent) -> None:
        agent.turn(["fine"])
        agent.session.append("turn/start", {"turn": 2})

    deeds = await World(unclosed).run()
    assert deeds[1:] == [
        ("stdout", "fine\n"),
        ("stderr", "dsh: the turn has no end in the log"),
        ("exit", 1),
    ]


@aio
async def test_a_run_whose_listeners_leak_a_cancellation_ends_as_a_failure() -> None:
    world = World(turns(["x"]))

    async def fail(owner: Context, request: CreateAgent) -> AgentHandle:
        raise asyncio.CancelledError

    world.factory.create = fail  # type: ignore[method-assign]
    deeds = await world.run()
    assert "the run raised CancelledError" in str(deeds[0]) and deeds[1:] == [("exit", 1)]


@aio
async def test_failure_of_the_factory_prints_nothing_on_standard_output() -> None:
    world = World(turns(["x"]))

    async def fail(owner: Context, request: CreateAgent) -> AgentHandle:
        raise ValueError("no\nluck")

    world.factory.create = fail  # type: ignore[method-assign]
    assert await world.run() == [("stderr", "dsh: no luck"), ("exit", 1)]


async def until_cancelled(agent: ScriptedAgent) -> None:
    agent.session.append("turn/start", {"turn": 1})
    await agent.cancelled.wait()
    agent.session.append("turn/end", {"turn": 1, "reason": {"kind": "aborted", "reason": agent.cause}})


@aio
async def test_signal_cancels_with_its_cause_and_the_run_ends_in_order() -> None:
    world = World(until_cancelled)
    run = asyncio.ensure_future(world.run())
    while not (world.factory.agents and world.factory.agents[0].tasks):
        await asyncio.sleep(0)

    assert world.root.bail(APP_INTERRUPT, SIGINT) is True

    deeds = await run
    assert [kind for kind, _ in deeds] == ["flush", "stdout", "exit"]
    assert deeds[1:] == [("stdout", "\n"), ("exit", 130)]
    assert world.factory.agents[0].cause == {"kind": "user"}


@aio
async def test_signal_while_the_agent_is_made_prints_nothing() -> None:
    world = World(turns(["x"]), delay_s=60)
    run = asyncio.ensure_future(world.run())
    while not world.factory.requests:
        await asyncio.sleep(0)

    assert world.root.bail(APP_INTERRUPT, SIGINT) is True

    assert await run == [("exit", 130)]


@aio
async def test_signal_after_the_end_was_asked_for_is_left_to_the_launcher() -> None:
    world = World(turns(["x"]))
    await world.mount()
    world._ready.set()
    await asyncio.wait_for(world.over.wait(), 5)

    assert world.root.bail(APP_INTERRUPT, SIGINT) is None
    await world.root.dispose()


@aio
async def test_agent_that_does_not_stop_is_left_after_the_grace() -> None:
    async def deaf(agent: ScriptedAgent) -> None:
        agent.session.append("turn/start", {"turn": 1})
        await asyncio.sleep(0.5)

    world = World(deaf)
    run = asyncio.ensure_future(world.run(world.mount_impatient))
    while not (world.factory.agents and world.factory.agents[0].tasks):
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    world.root.bail(APP_INTERRUPT, SIGINT)
    assert (await run)[-1] == ("exit", 130)
    await world.factory.agents[0].when_idle()


@aio
async def test_nothing_is_printed_when_the_tree_goes_down_under_the_run() -> None:
    world = World(until_cancelled)
    await world.mount()
    world._ready.set()
    while not (world.factory.agents and world.factory.agents[0].tasks):
        await asyncio.sleep(0)

    undoing = asyncio.ensure_future(world.root.dispose())
    await asyncio.sleep(0)
    world.factory.agents[0].cancel({"kind": "disposed"})
    await undoing

    assert world.deeds == []
