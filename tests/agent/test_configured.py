"""Agents that the config of the loop's row names: which session each gets, when, and what a failure costs."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from dsh.agent.configured import CONFIGURED_IDENTITIES, ConfiguredIdentity
from dsh.agent.contract import (
    AGENT_CONFIG_START_FAILED,
    AGENT_PRE_STEP,
    AGENT_SESSION_START,
    ConfigStartFailed,
)
from dsh.agent.registry import AGENTS
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.persistence.error import SessionNotFound
from dsh.plugins import session_persistence_jsonl
from dsh.session.message import user_message
from tests.agent.kit import Loop, data_of, ends, loop, settled, text, until
from tests.aio import aio

ROUTE = {"provider": "p", "model": "m"}


def live(it: Loop) -> dict[str, str]:
    return {agent.id: agent.status for agent in it.ctx.use(AGENTS).list()}


def told(failures: list[ConfigStartFailed], started: list[str]) -> Any:
    def listen(ctx: Context) -> None:
        ctx.on(AGENT_CONFIG_START_FAILED, failures.append)
        ctx.on(AGENT_SESSION_START, lambda s: started.append(f"{s.agent.id} {s.source}"))

    return listen


async def store_session(folder: Path, session_id: str) -> None:
    rows = [(session_persistence_jsonl, {"root": str(folder)})]
    async with loop(text("done"), rows=rows) as it:
        agent = await it.agent(session_id=session_id, cwd=str(folder))
        await it.prompt(agent, "first")


@pytest.mark.parametrize("is_stored", [True, False])
@aio
async def test_an_exact_session_is_resumed_where_it_is_stored_and_made_where_it_is_not(
    tmp_path: Path, is_stored: bool
) -> None:
    """The storage is mounted before the loop, so that it is there when the agent starts."""
    if is_stored:
        await store_session(tmp_path, "exact")
    started: list[str] = []

    def first(ctx: Context) -> None:
        told([], started)(ctx)
        ctx.plugin(session_persistence_jsonl, {"root": str(tmp_path)})

    row = {"id": "a", "sessionId": "exact", "cwd": str(tmp_path), **ROUTE}
    async with loop(config={"agents": [row]}, first=first) as it:
        await until(lambda: started)
        assert started == [f"exact {'resume' if is_stored else 'startup'}"]
        assert it.statuses == []


@aio
async def test_a_session_to_resume_waits_for_a_storage_and_is_not_made_up(tmp_path: Path) -> None:
    await store_session(tmp_path, "kept")
    started: list[str] = []
    failures: list[ConfigStartFailed] = []
    rows = [{"id": "a", "resumeSessionId": "kept", **ROUTE}, {"id": "b", "resumeSessionId": "lost", **ROUTE}]
    async with loop(config={"agents": rows}, first=told(failures, started)) as it:
        await asyncio.sleep(0.01)
        assert (started, failures) == ([], [])
        await settled(it.ctx.plugin(session_persistence_jsonl, {"root": str(tmp_path)}))
        await until(lambda: started and failures)
        assert started == ["kept resume"]
        assert [failure.session_id for failure in failures] == ["lost"]
        assert live(it) == {"kept": "idle"}


@aio
async def test_a_damaged_session_is_told_and_not_replaced_by_a_new_one(tmp_path: Path) -> None:
    await store_session(tmp_path, "exact")
    (log,) = [path for path in tmp_path.rglob("*") if path.is_file() and "jsonl" in path.name]
    log.write_bytes(b"not a log\n" + log.read_bytes()[:20])
    failures: list[ConfigStartFailed] = []

    def first(ctx: Context) -> None:
        told(failures, [])(ctx)
        ctx.plugin(session_persistence_jsonl, {"root": str(tmp_path)})

    async with loop(config={"agents": [{"id": "a", "sessionId": "exact", **ROUTE}]}, first=first) as it:
        await until(lambda: failures)
        assert live(it) == {}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"a": ConfiguredIdentity("picked")}, {"picked"}),
        ({"other": ConfiguredIdentity("picked")}, {"own"}),
        ({"a": ConfiguredIdentity("stored", resume=True)}, set()),
    ],
)
@aio
async def test_the_launcher_may_choose_the_session_in_the_rows_place(
    chosen: Mapping[str, ConfiguredIdentity], expected: set[str]
) -> None:
    """Without a storage, one that is to be resumed does not start at all."""
    rows = [{"id": "a", "sessionId": "own", **ROUTE}]
    async with loop(config={"agents": rows}, first=lambda ctx: given(ctx, chosen)) as it:
        await until(lambda: set(live(it)) == expected)
        await asyncio.sleep(0.01)
        assert set(live(it)) == expected


def given(ctx: Context, chosen: Mapping[str, ConfiguredIdentity]) -> None:
    ctx.provide(CONFIGURED_IDENTITIES, chosen)


@aio
async def test_two_rows_with_one_chosen_session_are_refused() -> None:
    chosen = {"a": ConfiguredIdentity("same"), "b": ConfiguredIdentity("same", resume=True)}
    rows = [{"id": "a", **ROUTE}, {"id": "b", **ROUTE}]
    with pytest.raises(CompositionError, match="'same' already"):
        async with loop(config={"agents": rows}, first=lambda ctx: given(ctx, chosen)):
            raise AssertionError("never")


@aio
async def test_a_session_that_is_being_ended_is_waited_for() -> None:
    """The loop's row is mounted anew while an agent of that id is still on its way out."""
    started: list[str] = []
    failures: list[ConfigStartFailed] = []
    go = asyncio.Event()
    async with loop([go.wait, *text("late")], first=told(failures, started)) as it:
        handle = await it.create(session_id="exact")
        handle.agent.followup(user_message("go"))
        await until(lambda: it.model.requests)
        ending = asyncio.ensure_future(handle.dispose())
        await asyncio.sleep(0)
        row = {"id": "a", "sessionId": "exact", **ROUTE}
        loop_row = handle.agent.ctx.fiber.parent.fiber  # type: ignore[union-attr]
        updating = asyncio.ensure_future(loop_row.update({"agents": [row]}))
        await asyncio.sleep(0.01)
        assert started == ["exact startup"]
        go.set()
        await asyncio.gather(ending, updating)
        await until(lambda: len(started) == 2)
        assert failures == []
        agent = it.ctx.use(AGENTS).get("exact")
        assert agent is not None
        assert agent is not handle.agent
        assert data_of(agent.session, "turn/start") == []


@aio
async def test_an_agent_of_somebody_else_that_is_being_ended_is_waited_for_too(tmp_path: Path) -> None:
    failures: list[ConfigStartFailed] = []
    go = asyncio.Event()

    async def linger() -> None:
        await go.wait()

    rows = [{"id": "a", "resumeSessionId": "exact", **ROUTE}]
    async with loop(config={"agents": rows}, first=told(failures, [])) as it:
        handle = await it.create(session_id="exact")
        handle.agent.ctx.effect(lambda: linger)
        ending = asyncio.ensure_future(handle.dispose())
        await settled(it.ctx.plugin(session_persistence_jsonl, {"root": str(tmp_path)}))
        await asyncio.sleep(0.01)
        too_early = list(failures)
        go.set()
        await ending
        await until(lambda: failures)
        assert too_early == []
        assert isinstance(failures[0].error, SessionNotFound), "not that it is live already"


@aio
async def test_what_waits_for_an_agent_outlives_the_reload_of_its_row(tmp_path: Path) -> None:
    """The running turn is cut off, and what was claimed, queued and steered is there for the next agent."""
    started: list[str] = []

    def first(ctx: Context) -> None:
        told([], started)(ctx)
        ctx.plugin(session_persistence_jsonl, {"root": str(tmp_path)})

    row = {"id": "a", "sessionId": "exact", "cwd": str(tmp_path), **ROUTE}
    async with loop(text("done"), config={"agents": [row]}, first=first) as it:
        await until(lambda: started)
        agent = it.ctx.use(AGENTS).get("exact")
        assert agent is not None
        holding = it.ctx.on(AGENT_PRE_STEP, lambda payload, following: payload.signal.sleep(60))
        for words in ("one", "two"):
            agent.followup(user_message(words))
        agent.steer(user_message("hint"))
        fiber = agent.ctx.fiber.parent.fiber  # type: ignore[union-attr]
        await fiber.update({"agents": [row], "maxStepsPerTurn": 9})
        await until(lambda: len(started) == 2)
        await holding()

        again = it.ctx.use(AGENTS).get("exact")
        assert again is not None and again is not agent
        assert started == ["exact startup", "exact resume"]
        assert ends(again.session) == [{"kind": "aborted", "reason": {"kind": "disposed"}}]
        assert again.continue_pending()
        await again.when_idle()
        said = [data["content"][0]["text"] for data in data_of(again.session, "user/message")]
        assert said == ["hint", "one", "two"]


@aio
async def test_nothing_is_told_of_a_start_that_the_end_of_the_loop_cut_off() -> None:
    failures: list[ConfigStartFailed] = []
    rows = [{"id": name, **ROUTE} for name in "abc"]
    for ticks in range(8):
        async with loop(first=told(failures, [])) as it:
            fiber = it.ctx.use(AGENTS)._require_factory()._services.ctx.fiber  # type: ignore[attr-defined]
            updating = asyncio.ensure_future(fiber.update({"agents": rows}))
            for _ in range(ticks):
                await asyncio.sleep(0)
            await fiber.dispose()
            await asyncio.gather(updating, return_exceptions=True)
            assert live(it) == {}
    assert failures == []
