"""Many agents that come and go in any order: owners end, ids are fought over, turns run meanwhile."""

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dsh.agent.contract import AGENT_CREATED, AGENT_DISPOSED, Agent, AgentHandle, AgentOptions, CreateAgent
from dsh.agent.failure import AgentError
from dsh.agent.registry import AGENTS
from dsh.errors import DshError
from dsh.kernel import Cancelled, CancelToken, Fiber
from dsh.session.error import SessionError
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.store import SESSION_CREATED, SESSION_DISPOSED
from dsh.session.verify.log import verify
from tests.agent.kit import Loop, calls, loop, settled, text
from tests.aio import aio_in_virtual_time

OPTIONS = AgentOptions(provider="p", model="m")
IDS = ("a", "b", "c")

WHICH = st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(st.just("create"), WHICH, WHICH),  # id, owner
    st.tuples(st.just("child"), WHICH, WHICH),  # id, parent
    st.tuples(st.just("dispose"), WHICH, st.just(0)),
    st.tuples(st.just("prompt"), WHICH, st.just(0)),
    st.tuples(st.just("cancel"), WHICH, st.just(0)),
    st.tuples(st.just("abort"), WHICH, st.just(0)),
    st.tuples(st.just("owner"), WHICH, st.just(0)),
    st.tuples(st.just("veto"), WHICH, st.just(0)),
    st.tuples(st.just("ticks"), st.integers(1, 9), st.just(0)),
)


class Play:
    """The composition, three owners, and what was announced."""

    def __init__(self, it: Loop) -> None:
        self.it = it
        self.owners: list[Fiber] = []
        self.signals = [CancelToken() for _ in IDS]
        self.making: list[asyncio.Task[AgentHandle | None]] = []
        self.handles: list[AgentHandle] = []
        self.endings: list[asyncio.Task[None]] = []
        self.vetoes = 0
        self.told: Counter[str] = Counter()
        self.sessions: list[Session] = []
        it.ctx.on(SESSION_CREATED, self.on_session)
        it.ctx.on(SESSION_DISPOSED, lambda _: self.told.update(["session"]))
        it.ctx.on(AGENT_CREATED, self.on_agent)
        it.ctx.on(AGENT_DISPOSED, lambda _: self.told.update(["agent"]))

    def on_session(self, session: Session) -> None:
        self.told.subtract(["session"])
        self.sessions.append(session)

    def on_agent(self, created: Any) -> None:
        self.told.subtract(["agent"])
        if self.vetoes:
            self.vetoes -= 1
            raise AgentError("not this one")

    async def mount_owner(self) -> Fiber:
        fiber = self.it.ctx.inject([AGENTS], lambda ctx: None)
        await settled(fiber)
        return fiber

    def agent(self, which: int) -> Agent | None:
        return self.it.ctx.use(AGENTS).get(IDS[which])

    def create(self, owner: Any, which: int) -> None:
        async def setup(ctx: Any) -> None:
            await asyncio.sleep(0)

        async def make() -> AgentHandle | None:
            try:
                request = CreateAgent(
                    session_id=IDS[which], options=OPTIONS, setup=setup, signal=self.signals[which]
                )
                handle: AgentHandle = await owner.use(AGENTS).create(request)
            except (DshError, SessionError, Cancelled):
                return None
            self.handles.append(handle)
            return handle

        self.making.append(asyncio.ensure_future(make()))

    async def do(self, kind: str, which: int, other: int) -> None:
        agent = self.agent(which % 3)
        match kind:
            case "create":
                self.create(self.owners[other].ctx, which)
            case "child":
                if (parent := self.agent(other)) is not None:
                    self.create(parent.ctx, which)
            case "dispose":
                if handle := next((h for h in self.handles if h.agent is agent), None):
                    self.endings.append(asyncio.ensure_future(_awaited(handle)))
            case "prompt":
                if agent is not None:
                    try:
                        agent.followup(user_message("go"))
                    except AgentError as error:
                        assert error.code == "NOT_PUBLISHED"
            case "cancel":
                if agent is not None:
                    agent.cancel({"kind": "user"})
            case "abort":
                self.signals[which].cancel("enough")
                self.signals[which] = CancelToken()
            case "owner":
                await self.owners[which].dispose()
                self.owners[which] = await self.mount_owner()
            case "veto":
                self.vetoes += 1
            case "ticks":
                for _ in range(which):
                    await asyncio.sleep(0)

    def check(self) -> None:
        """Whoever is live has a live session of its id, and owners are told apart."""
        agents = self.it.ctx.use(AGENTS)
        for agent in agents.list():
            assert self.it.sessions.get(agent.id) is agent.session
        owned = {a.id for a in agents.list() for b in agents.list() if agents.is_owned_by(a.id, b)}
        assert {a.id for a in agents.roots()} == {a.id for a in agents.list()} - owned


async def _awaited(handle: AgentHandle) -> None:
    await handle.dispose()


async def look(args: Any, exec: Any) -> str:  # noqa: A002
    await asyncio.sleep(0.01)
    return "seen"


@settings(max_examples=120)
@given(st.lists(STEPS, max_size=25))
def test_every_announcement_is_paired_every_log_is_right_and_nothing_is_left(
    steps: list[tuple[str, int, int]],
) -> None:
    @aio_in_virtual_time
    async def play() -> None:
        async with loop(calls(("c1", "look", "{}")), text("done"), text("done")) as it:
            it.tool("look", look)
            at = Play(it)
            at.owners = [await at.mount_owner() for _ in IDS]
            kernel = it.ctx.kernel
            row = it.ctx.use(AGENTS)._require_factory()._services.ctx.fiber  # type: ignore[attr-defined]
            before = (len(row.effects), len(row.children), kernel.events.count())
            for kind, which, other in steps:
                await at.do(kind, which, other)
                at.check()
            await asyncio.gather(*at.making)
            await asyncio.gather(*at.endings, *(handle.dispose() for handle in at.handles))
            for _ in range(5):
                await asyncio.sleep(0)
            assert (len(row.effects), len(row.children), kernel.events.count()) == before
            assert it.ctx.use(AGENTS).list() == ()
            assert it.sessions.list() == ()
            assert set(at.told.values()) <= {0}
            for session in at.sessions:
                assert session.open_turn is None
                assert verify(session).findings == ()

    play()
