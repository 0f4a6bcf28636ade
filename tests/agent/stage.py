"""A loop, an owner for agents and a storage of one session: what makings and ends are tested on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from dsh.agent.contract import (
    AGENT_CREATED,
    AGENT_DISPOSED,
    AgentHandle,
    AgentOptions,
    CreateAgent,
    ResumeAgent,
)
from dsh.agent.registry import AGENTS
from dsh.kernel import Context, Fiber
from dsh.persistence.service import PERSISTENCE
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.store import SESSION_CREATED, SESSION_DISPOSED
from tests.agent.kit import Loop, loop, settled, text

OPTIONS = AgentOptions(provider="p", model="m")


class Stored:
    """A storage of one session, whose reservation is counted. `delay` ticks pass before it answers."""

    def __init__(self) -> None:
        self.delay = 3
        self.reserved = 0
        self.failure: Exception | None = None

    def session(self) -> Session:
        session = Session(SessionHeader(id="s", created_at=0))
        spliced = {"target": "next-turn", "start": 0, "inserted": [user_message("waiting")]}
        session.append("agent/inbox/spliced", spliced)
        return session

    async def prepare(self, session_id: str) -> Any:
        for _ in range(self.delay):
            await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        self.reserved += 1
        storage = self

        class Prepared:
            session = storage.session()

            async def release(self) -> None:
                await asyncio.sleep(0)
                storage.reserved -= 1

        return Prepared()


class Stage:
    """A loop, an owner for agents, and what is counted before and after."""

    def __init__(self, it: Loop, owner: Fiber, storage: Stored) -> None:
        self.it, self.owner, self.storage = it, owner, storage
        self.told: list[str] = []
        it.ctx.on(SESSION_CREATED, lambda _: self.told.append("session/created"))
        it.ctx.on(SESSION_DISPOSED, lambda _: self.told.append("session/disposed"))
        it.ctx.on(AGENT_CREATED, lambda _: self.told.append("agent/created"))
        it.ctx.on(AGENT_DISPOSED, lambda _: self.told.append("agent/disposed"))
        self.row = it.ctx.use(AGENTS)._require_factory()._services.ctx.fiber  # type: ignore[attr-defined]
        self.before = self.counts()

    def counts(self) -> tuple[int, ...]:
        kernel = self.it.ctx.kernel
        return (len(self.row.effects), len(self.row.children), len(self.owner.effects), kernel.events.count())

    def start(self, way: str, **fields: Any) -> "asyncio.Task[AgentHandle]":
        agents = self.owner.ctx.use(AGENTS)

        async def make() -> AgentHandle:
            if way == "create":
                return await agents.create(CreateAgent(session_id="s", options=OPTIONS, **fields))
            return await agents.resume(ResumeAgent(session_id="s", options=OPTIONS, **fields))

        return asyncio.ensure_future(make())

    def nothing_left(self) -> bool:
        """Nobody is live, and every announcement that began has its counterpart."""
        is_paired = all(
            self.told.count(f"{what}/created") == self.told.count(f"{what}/disposed")
            for what in ("session", "agent")
        )
        return is_paired and not self.it.ctx.use(AGENTS).list() and not self.it.sessions.list()


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    storage = Stored()

    def give(ctx: Context) -> None:
        ctx.provide(PERSISTENCE, storage)  # type: ignore[misc]

    async with loop(text("done"), first=give) as it:
        owner = it.ctx.inject([AGENTS], lambda ctx: None)
        await settled(owner)
        yield Stage(it, owner, storage)


async def ticks(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def slow(ctx: Context) -> None:
    ctx.on(AGENT_CREATED, lambda _: None)
    await ticks(3)
