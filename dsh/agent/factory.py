"""How an agent comes to be and how it ends: one transaction, and one chain of undoing it.

Nobody sees an agent before its setup is done; whatever fails on the way leaves no session, no agent, no
fiber and no listener behind (`spec/agent-loop.md` §12).
"""

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable

from dsh.agent.contract import (
    AGENT_SESSION_START,
    AgentHandle,
    AgentOptions,
    CreateAgent,
    ResumeAgent,
    SessionStarted,
    SessionStartSource,
    Setup,
)
from dsh.agent.driver import LoopAgent
from dsh.agent.failure import AgentError
from dsh.agent.registry import AgentRegistry
from dsh.agent.services import LoopServices
from dsh.kernel import CancelToken, Context, Scope, ScopeTarget, create_scope
from dsh.persistence.service import PERSISTENCE, PreparedSession
from dsh.session.log import Session
from dsh.session.store import SESSIONS, SessionStore
from dsh.session.value import MAX_SAFE_INT

_late: set[asyncio.Future[None]] = set()
"""Releases under way."""


class LoopFactory:
    """Makes `LoopAgent`s for the registry. State: the agents it made that are still live."""

    def __init__(self, services: LoopServices, sessions: SessionStore, agents: AgentRegistry) -> None:
        self.services = services
        self.sessions = sessions
        self.agents = agents
        self.teardown = CancelToken()
        """Cancelled when the loop goes: no agent comes to be any more."""
        services.ctx.effect(lambda: lambda: self.teardown.cancel("the agent loop is going"), "agent factory")

    async def create(self, owner: Context, request: CreateAgent) -> AgentHandle:
        _check_options(request.options)
        session = self.sessions.prepare(
            request.session_id or f"session-{uuid.uuid4()}",
            cwd=request.cwd,
            parent_session=request.parent_session,
            origin=request.origin,
            delegation_depth=request.delegation_depth,
            agent_preset=request.agent_preset,
        )
        making = _Making(self, owner, request.signal)
        return await making.run(session, request, "startup", None)

    async def resume(self, owner: Context, request: ResumeAgent) -> AgentHandle:
        _check_options(request.options)
        if self.agents.get(request.session_id) is not None:
            raise AgentError(f"an agent with id {request.session_id!r} is live already", code="AGENT_EXISTS")
        persistence = self.services.ctx.get(PERSISTENCE)
        if persistence is None:
            raise AgentError(
                f"session {request.session_id!r} cannot be resumed: no persistence is mounted",
                hint="add row session-persistence-jsonl",
            )
        making = _Making(self, owner, request.signal)
        loading = asyncio.ensure_future(persistence.prepare(request.session_id))
        try:
            prepared = await making.abort.race(loading)
        except BaseException:
            loading.add_done_callback(_release_late)
            making.forget()
            raise
        return await making.run(prepared.session, request, "resume", prepared.release)


class _Making:
    """One agent on its way in, and later on its way out."""

    def __init__(self, factory: LoopFactory, owner: Context, signal: CancelToken | None) -> None:
        self._factory = factory
        self._services = factory.services
        self._owner = owner
        self.abort = CancelToken.any_of(signal, factory.teardown)
        self._agent: LoopAgent | None = None
        self._scope: Scope | None = None
        self._leave: list[Callable[[], None]] = []
        self._release: Callable[[], Awaitable[None]] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._bonds = [ctx.effect(lambda: self._owner_gone, "agent") for ctx in (owner, factory.services.ctx)]

    async def run(
        self,
        session: Session,
        request: CreateAgent | ResumeAgent,
        source: SessionStartSource,
        release: Callable[[], Awaitable[None]] | None,
    ) -> AgentHandle:
        self._release = release
        try:
            self.abort.raise_if_cancelled()
            agent = self._agent = LoopAgent(self._services, session, request.options, request.limits)
            self._scope = await create_scope(self._services.ctx, agent)
            agent.ctx = self._scope.ctx
            self.abort.raise_if_cancelled()
            if request.setup is not None:
                await self._set_up(request.setup, agent.ctx)
            self._publish(agent, source)
        except BaseException:
            await self.dispose()
            raise
        self.abort.detach()
        return AgentHandle(agent, self.dispose)

    async def _set_up(self, setup: Setup, ctx: Context) -> None:
        answer = setup(ctx)
        if inspect.isawaitable(answer):
            answer = await self.abort.race(answer)
        if answer is not None:
            answer.commit()
        self.abort.raise_if_cancelled()

    def _publish(self, agent: LoopAgent, source: SessionStartSource) -> None:
        sessions = agent.ctx.use(SESSIONS)
        self._leave.append(sessions.enter(agent.session))
        self._leave.append(self._factory.agents.enter(agent, self._owner))
        sessions.announce(agent.session)
        self.abort.raise_if_cancelled()
        self._factory.agents.announce(agent)
        self.abort.raise_if_cancelled()
        if source == "resume":
            agent.recover()
        self._services.ctx.emit(
            AGENT_SESSION_START, SessionStarted(agent, source), subject=ScopeTarget(agent)
        )
        self.abort.raise_if_cancelled()

    # -- the end ---------------------------------------------------------------------------------

    async def dispose(self) -> None:
        """End the agent. All callers wait for the same end."""
        if self._ending is None:
            self._ending = self._services.ctx.kernel.keep(self._end(), "dispose agent")
        if self._ending is not asyncio.current_task():
            await asyncio.shield(self._ending)

    def forget(self) -> None:
        """Undo the bonds of a making that never had an agent."""
        self.abort.detach()
        for bond in self._bonds:
            bond.release()

    async def _owner_gone(self) -> None:
        self.abort.cancel("the owner of the agent is going")
        await self.dispose()

    async def _end(self) -> None:
        agent, scope = self._agent, self._scope
        self.abort.detach()
        if agent is not None:
            agent.close()
            await agent.when_idle()
        if scope is not None:
            await scope.fiber.dispose()
        if agent is not None and self._leave:
            await self._flush(agent)
        while self._leave:
            self._leave.pop()()
        if self._release is not None:
            await self._release()
        self.forget()

    async def _flush(self, agent: LoopAgent) -> None:
        """What the agent logged last becomes durable before its session leaves the store."""
        sessions = self._factory.sessions
        if sessions.get(agent.id) is not agent.session:
            return
        try:
            await sessions.flush(agent.session)
        except Exception as error:
            self._services.ctx.logger.error(
                "session %s could not be flushed: %s", agent.id, error, exc_info=error
            )


def _check_options(options: AgentOptions) -> None:
    limit: object = options.max_tokens
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MAX_SAFE_INT):
        raise AgentError(f"maxTokens of an agent is a positive integer up to 2^53-1, found {limit!r:.60}")


def _release_late(loading: "asyncio.Future[PreparedSession]") -> None:
    """A load that came too late gives its reservation back."""
    if not loading.cancelled() and loading.exception() is None:
        _late.add(task := asyncio.ensure_future(loading.result().release()))
        task.add_done_callback(_late.discard)
