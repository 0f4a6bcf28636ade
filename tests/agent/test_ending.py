"""The end of an agent: everything is undone whatever fails on the way, and its id is free afterwards."""

import asyncio
from typing import Any

import pytest

from dsh.agent.contract import (
    Agent,
)
from dsh.agent.failure import AgentError
from dsh.agent.registry import AGENTS
from dsh.errors import KernelError
from dsh.session.log import Session
from dsh.session.message import user_message
from tests.agent.kit import loop
from tests.agent.stage import stage, ticks
from tests.aio import aio


@aio
async def test_a_disposer_that_raises_is_told_and_everything_else_is_undone() -> None:
    async with stage() as at:
        handle = await at.start("create")
        order: list[str] = []

        def fail() -> None:
            order.append("failing")
            raise RuntimeError("cannot be undone")

        handle.agent.ctx.effect(lambda: lambda: order.append("first"))
        handle.agent.ctx.effect(lambda: fail)
        await asyncio.gather(handle.dispose(), handle.dispose(), return_exceptions=True)
        assert order == ["failing", "first"]
        assert at.nothing_left()
        await ticks(5)
        assert at.counts() == at.before


@aio
async def test_a_log_that_takes_nothing_any_more_does_not_keep_its_agent_alive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with stage() as at:
        handle = await at.start("create")
        handle.agent.inject(user_message("waits"))

        def refuse(*_: object, **__: object) -> None:
            raise OSError("no space left on device")

        monkeypatch.setattr(Session, "append", refuse)
        with pytest.raises(OSError, match="no space"):
            await handle.dispose()
        assert at.nothing_left()


@aio
async def test_who_waits_for_an_agent_that_ends_waits_until_its_id_is_free() -> None:
    async with stage() as at:
        agents = at.it.ctx.use(AGENTS)
        await agents.departed("s")
        handle = await at.start("create")
        await agents.departed("s")  # it is live and well
        go = asyncio.Event()

        async def linger() -> None:
            await go.wait()

        handle.agent.ctx.effect(lambda: linger)
        ending = asyncio.ensure_future(handle.dispose())
        waiting = asyncio.ensure_future(agents.departed("s"))
        await ticks(10)
        assert not waiting.done()
        go.set()
        await waiting
        await ending
        assert (await at.start("create")).agent.id == "s"


@aio
async def test_an_agent_that_somebody_built_is_registered_as_an_effect_of_its_owner() -> None:
    async with stage() as at:
        session = at.it.sessions.create("own")[0]

        class Built:
            id = "own"

            def __init__(self) -> None:
                self.session = session

        built: Any = Built()
        agent: Agent = built
        agents = at.owner.ctx.use(AGENTS)
        agents.register(agent)
        assert agents.get("own") is agent
        with pytest.raises(AgentError, match="live already"):
            agents.register(agent)
        await at.owner.dispose()
        assert at.it.ctx.use(AGENTS).get("own") is None
        assert at.told.count("agent/disposed") == 1


@aio
async def test_an_agent_of_another_id_than_its_session_is_not_registered() -> None:
    async with loop() as it:
        agent: Any = await it.agent()

        class Other:
            id = "other"
            session = agent.session

        other: Any = Other()
        with pytest.raises(AgentError, match="is not the id of its session"):
            it.ctx.use(AGENTS).register(other)
        assert it.ctx.use(AGENTS).list() == (agent,)


@aio
async def test_there_is_one_factory() -> None:
    async with loop() as it:
        with pytest.raises(KernelError):
            it.ctx.use(AGENTS).set_factory(it.ctx.use(AGENTS)._require_factory())
