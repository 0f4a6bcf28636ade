"""No prompt is lost: what was claimed and has not entered waits again, after a failure, an end or a kill."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.agent.contract import (
    AGENT_INBOX_INSERTED,
    AGENT_PRE_STEP,
    AGENT_SESSION_START,
    Agent,
    AgentHandle,
    AgentOptions,
    CancelCause,
    EnterStep,
    PreStep,
    ResumeAgent,
)
from dsh.agent.registry import AGENTS
from dsh.kernel import Cancelled
from dsh.plugins import session_checkpoint_policy, session_persistence_jsonl
from dsh.session.inbox_fold import INBOX_SPLICED
from dsh.session.log import Session
from dsh.session.message import user_message
from tests.agent.kit import Loop, calls, data_of, ends, loop, short, text, texts_of, types
from tests.aio import aio

USER: CancelCause = {"kind": "user"}
OPTIONS = AgentOptions(provider="p", model="m")


def words(messages: Any) -> list[str]:
    return [message["content"][0]["text"] for message in messages]


def waiting(agent: Agent) -> list[str]:
    return words((*agent.inbox.next_step, *agent.inbox.next_turn))


def entered(agent: Agent) -> list[str]:
    return words(data_of(agent.session, "user/message"))


# -- in the same process -------------------------------------------------------------------------------


@aio
async def test_what_is_put_back_stands_before_what_came_later() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()

        async def cancel(payload: PreStep, following: Callable[[], Awaitable[Any]]) -> Any:
            agent.inject(user_message("late note"))
            agent.followup(user_message("late prompt"))
            agent.cancel(USER, keep_inbox=True)
            return await following()

        listening = it.ctx.on(AGENT_PRE_STEP, cancel)
        agent.inject(user_message("note 1"))
        agent.inject(user_message("note 2"))
        await it.prompt(agent, "prompt")
        assert words(agent.inbox.next_step) == ["note 1", "note 2", "late note"]
        assert words(agent.inbox.next_turn) == ["prompt", "late prompt"]
        await listening()
        assert agent.continue_pending()
        await agent.when_idle()
        assert entered(agent) == ["note 1", "note 2", "late note", "prompt", "late prompt"]


@aio
async def test_steering_of_a_later_step_waits_again_and_what_entered_does_not() -> None:
    async with loop(calls(("c1", "steer", "{}")), text("done")) as it:
        agent = await it.agent()

        async def steer(args: Any, execution: Any) -> str:
            agent.steer(user_message("more"))
            return "ok"

        async def cancel(payload: PreStep, following: Callable[[], Awaitable[Any]]) -> Any:
            if payload.step == 2:
                agent.cancel(USER, keep_inbox=True)
            return await following()

        it.tool("steer", steer)
        it.ctx.on(AGENT_PRE_STEP, cancel)
        await it.prompt(agent, "go")
        assert entered(agent) == ["go"]
        assert waiting(agent) == ["more"]
        assert short(agent.session).endswith("step/end spliced spliced turn/end")


@pytest.mark.parametrize("first_keeps", [True, False])
@aio
async def test_any_cancel_of_a_turn_that_drops_the_queue_drops_its_claim(first_keeps: bool) -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        agent.followup(user_message("go"))
        agent.cancel(USER, keep_inbox=first_keeps)
        agent.cancel(USER, keep_inbox=not first_keeps)
        await agent.when_idle()
        assert waiting(agent) == []


@aio
async def test_the_drop_of_one_turn_is_forgotten_in_the_next() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        agent.followup(user_message("a"))
        agent.cancel(USER)
        await agent.when_idle()
        agent.followup(user_message("b"))
        agent.cancel(USER, keep_inbox=True)
        await agent.when_idle()
        assert waiting(agent) == ["b"]


@aio
async def test_a_message_that_a_listener_left_out_is_not_put_back_when_the_others_cannot_enter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()

        async def without_note(payload: PreStep, following: Callable[[], Awaitable[Any]]) -> Any:
            return EnterStep(payload.messages[1:])

        it.ctx.on(AGENT_PRE_STEP, without_note)
        real = Session.append

        def append(self: Session, kind: str, *args: Any, **options: Any) -> Any:
            if kind == "user/message":
                raise OSError("no space left")
            return real(self, kind, *args, **options)

        monkeypatch.setattr(Session, "append", append)
        agent.inject(user_message("note"))
        await it.prompt(agent, "go")
        assert ends(agent.session)[0]["kind"] == "error"
        assert waiting(agent) == ["go"]


@aio
async def test_what_is_put_back_is_told_as_inserted() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        told: list[str] = []
        it.ctx.on(AGENT_INBOX_INSERTED, lambda changed: told.extend(words([changed.message])))
        agent.followup(user_message("go"))
        agent.cancel(USER, keep_inbox=True)
        await agent.when_idle()
        assert told == ["go", "go"]


# -- after an end in order ------------------------------------------------------------------------------


async def ended_by_row(handle: AgentHandle) -> None:
    await handle.agent.ctx.fiber.parent.fiber.dispose()  # type: ignore[union-attr]


async def ended_by_handle(handle: AgentHandle) -> None:
    await handle.dispose()


@pytest.mark.parametrize(
    ("end", "left"), [(ended_by_row, ["note", "first", "second"]), (ended_by_handle, [])]
)
@pytest.mark.parametrize("state", ["idle", "claimed", "in maintenance"])
@aio
async def test_what_waits_stays_for_a_resume_unless_the_agent_itself_is_ended(
    tmp_path: Path, end: Callable[[AgentHandle], Awaitable[None]], left: list[str], state: str
) -> None:
    async with loop(text("done"), rows=rows_of(tmp_path)) as it:
        handle = await it.create(session_id="s")
        agent = handle.agent
        if state == "idle":
            agent.inbox.append("next-turn", user_message("first"))
        elif state == "in maintenance":
            held = asyncio.ensure_future(agent.run_maintenance(lambda token: token.sleep(60)))
            agent.followup(user_message("first"))
        agent.inject(user_message("note"))
        if state == "claimed":
            it.ctx.on(AGENT_PRE_STEP, lambda payload, following: payload.signal.sleep(60))
            agent.followup(user_message("first"))
        agent.inbox.append("next-turn", user_message("second"))
        await end(handle)
        assert waiting(agent) == left
        assert [reason["reason"] for reason in ends(agent.session)] == [{"kind": "disposed"}] * (
            state == "claimed"
        )
        if state == "in maintenance":
            with pytest.raises(Cancelled):
                await held
    async with loop(text("done"), rows=rows_of(tmp_path)) as it:
        agent = await resumed(it)
        assert waiting(agent) == left
        assert agent.continue_pending() is bool(left)
        await agent.when_idle()
        assert entered(agent) == left


@aio
async def test_what_a_plain_cancel_has_claimed_is_not_kept_by_the_end_behind_it(tmp_path: Path) -> None:
    async with loop(text("done")) as it:
        handle = await it.create()
        agent = handle.agent
        agent.followup(user_message("go"))
        agent.cancel(USER)
        await ended_by_row(handle)
        assert waiting(agent) == []
        assert [reason["reason"] for reason in ends(agent.session)] == [USER]


@aio
async def test_a_turn_ends_before_what_its_agent_stands_on_is_undone() -> None:
    """Else a guard of the agent's own would be gone while its tools still run."""
    async with loop(calls(("c1", "slow", "{}"))) as it:
        handle = await it.create()
        agent = handle.agent
        order: list[str] = []
        started = asyncio.Event()

        async def slow(args: Any, execution: Any) -> str:
            started.set()
            while not execution.signal.cancelled:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.01)
            order.append("body")
            return ""

        it.tool("slow", slow)
        agent.ctx.effect(lambda: lambda: order.append("scope"))
        agent.followup(user_message("go"))
        await started.wait()
        await ended_by_row(handle)
        assert order == ["body", "scope"]


# -- after a kill ------------------------------------------------------------------------------------


def rows_of(root: Path) -> list[Any]:
    return [(session_persistence_jsonl, {"root": str(root), "compression": "none", "packChunks": False})]


async def written(root: Path) -> list[bytes]:
    """The lines of a log: a note and a prompt, steering in the second step, a second prompt."""
    rows = [*rows_of(root), (session_checkpoint_policy, {})]
    async with loop(calls(("c1", "steer", "{}")), text("done"), rows=rows) as it:
        handle = await it.create(session_id="s", cwd=str(root))
        agent = handle.agent

        async def steer(args: Any, execution: Any) -> str:
            agent.steer(user_message("more"))
            return "ok"

        it.tool("steer", steer)
        agent.inject(user_message("note"))
        agent.followup(user_message("first"))
        agent.followup(user_message("second"))
        await agent.when_idle()
        await it.sessions.flush(agent.session)
        (log,) = root.rglob("*.jsonl")
        return log.read_bytes().splitlines(keepends=True)


async def resumed(it: Loop) -> Agent:
    handle = await it.ctx.use(AGENTS).resume(ResumeAgent(session_id="s", options=OPTIONS))
    return handle.agent


SAID = ["note", "first", "more", "second"]


@aio
async def test_a_log_that_is_cut_behind_any_row_loses_no_message_and_gives_none_twice(tmp_path: Path) -> None:
    lines = await written(tmp_path / "whole")
    (log,) = (tmp_path / "whole").rglob("*.jsonl")
    for count in range(2, len(lines) + 1):
        root = tmp_path / str(count)
        cut = root / log.relative_to(tmp_path / "whole")
        cut.parent.mkdir(parents=True)
        cut.write_bytes(b"".join(lines[:count]))
        known = [word for word in SAID if f'"{word}"'.encode() in cut.read_bytes()]

        splices = []
        for _ in range(2):
            async with loop(text("done"), rows=rows_of(root)) as it:
                agent = await resumed(it)
                splices.append(len(data_of(agent.session, INBOX_SPLICED)))
                assert sorted([*entered(agent), *waiting(agent)]) == sorted(known), types(agent.session)
                assert it.statuses == []
        assert splices[0] == splices[1], "a second resume puts nothing back"

        async with loop(text("done"), rows=rows_of(root)) as it:
            agent = await resumed(it)
            has_work = bool(waiting(agent))
            assert agent.continue_pending() is has_work
            await agent.when_idle()
            assert sorted(entered(agent)) == sorted(known)


@aio
async def test_what_a_kill_took_waits_again_before_the_session_has_started(
    tmp_path: Path,
) -> None:
    lines = await written(tmp_path)
    (log,) = tmp_path.rglob("*.jsonl")
    step = next(number for number, line in enumerate(lines) if b"step/start" in line)
    log.write_bytes(b"".join(lines[:step]))
    async with loop(text("done"), rows=rows_of(tmp_path)) as it:
        seen: list[str] = []
        it.ctx.on(AGENT_SESSION_START, lambda started: seen.extend(waiting(started.agent)))
        agent = await resumed(it)
        assert seen[:2] == ["note", "first"]
        assert short(agent.session).endswith("turn/end session/end-seed spliced spliced")
        await it.prompt(agent, "go on")
        assert texts_of(it.model.requests[0])[:2] == ["user: note", "user: first"]
