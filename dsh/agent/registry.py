"""The `agents` service: who is live, who owns whom, and the creation and resumption of agents.

State: the live agents by id in order of publication, with the context each was created from; who is on the
way out. How an agent is built is the factory's business; the loop's row installs it.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from dsh.agent.contract import (
    AGENT_CREATED,
    AGENT_DISPOSED,
    Agent,
    AgentHandle,
    AgentSubject,
    CreateAgent,
    ResumeAgent,
)
from dsh.agent.failure import AgentError
from dsh.agent.initiator import Initiators, current_initiator
from dsh.kernel import Context, Effect, ScopeTarget, Service, ServiceKey

T = TypeVar("T")

AGENTS: "ServiceKey[AgentRegistry]" = ServiceKey("agents")


class AgentFactory(Protocol):
    """Builds agents for the registry. `owner` is the context on whose behalf: its end ends the agent."""

    async def create(self, owner: Context, request: CreateAgent) -> AgentHandle: ...

    async def resume(self, owner: Context, request: ResumeAgent) -> AgentHandle: ...


AGENT_FACTORY: ServiceKey[AgentFactory] = ServiceKey("agentFactory")
"""What builds agents. Rows that cannot do without a running loop inject it."""


class _Entry:
    """One live agent. `leave` may be asked for while its creation is still being announced."""

    __slots__ = ("agent", "announced", "announcing", "gone", "leaving", "owner")

    def __init__(self, agent: Agent, owner: Context) -> None:
        self.agent = agent
        self.owner = owner
        self.announced = self.announcing = self.leaving = self.gone = False


class AgentRegistry(Service):
    """The live agents of one composition."""

    provide = AGENTS

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx)
        self._entries: dict[str, _Entry] = {}
        self._departing: dict[str, asyncio.Future[Any]] = {}
        self.initiators = Initiators(ctx)
        """For the loop, whose drivers run on behalf of their agents."""

    # -- reading ---------------------------------------------------------------------------------

    def get(self, agent_id: str) -> Agent | None:
        entry = self._entries.get(agent_id)
        return entry.agent if entry is not None else None

    def list(self) -> tuple[Agent, ...]:
        """The live agents in order of publication."""
        return tuple(entry.agent for entry in self._entries.values())

    def roots(self) -> tuple[Agent, ...]:
        """Those that no other live agent owns."""
        return tuple(e.agent for e in self._entries.values() if not self._live_owner(e))

    def is_owned_by(self, agent_id: str, agent: Agent) -> bool:
        """Whether `agent`'s own context created the agent of that id. Says nothing of session lineage."""
        entry = self._entries.get(agent_id)
        return entry is not None and entry.owner.scope is agent

    def _live_owner(self, entry: _Entry) -> bool:
        return any(entry.owner.scope is other.agent for other in self._entries.values())

    # -- making ----------------------------------------------------------------------------------

    def set_factory(self, factory: AgentFactory) -> Effect:
        """Provide what builds agents, until the returned effect is undone.

        Raises:
            KernelError: there is one already.
        """
        return self.ctx.provide(AGENT_FACTORY, factory)

    async def create(self, request: CreateAgent) -> AgentHandle:
        """A new session and its agent, published when this returns. Belongs to the caller's context.

        Raises:
            AgentError: no factory, a taken id, or options out of range.
            Cancelled: `request.signal` was cancelled first.
        """
        return await self._require_factory().create(self.ctx, request)

    async def resume(self, request: ResumeAgent) -> AgentHandle:
        """A stored session and an agent on it. Nothing runs until somebody wakes it.

        Raises:
            AgentError: no factory, no persistence, or the session is live already.
            SessionError: the log cannot be opened.
        """
        return await self._require_factory().resume(self.ctx, request)

    def _require_factory(self) -> AgentFactory:
        factory = self.owner_ctx.get(AGENT_FACTORY)
        if factory is None:
            raise AgentError("no agent loop is mounted, so no agent can be made", hint="add row agent-loop")
        return factory

    # -- attribution -----------------------------------------------------------------------------

    def current_initiator(self) -> Agent | None:
        """The agent whose driver chain runs the present code, if one does: who caused it, and no more."""
        return current_initiator()

    def require_initiator(self) -> Agent:
        """The same where there has to be one.

        Raises:
            AgentError: nobody is named here (code NO_INITIATOR).
        """
        agent = current_initiator()
        if agent is None:
            raise AgentError(
                "no agent is running here, but this is done on behalf of one",
                code="NO_INITIATOR",
                hint="call it from a tool or a listener, or inside `agents.with_initiator`",
            )
        return agent

    def with_initiator(self, agent: Agent, operation: Callable[[], T]) -> T:
        """Call `operation` on behalf of `agent`; where it answers an awaitable, that as well.

        Raises:
            AgentError: the registry is going (code INITIATORS_GONE).
        """
        return self.initiators.run(agent, operation)

    def without_initiator(self, operation: Callable[[], T]) -> T:
        """Call `operation` on behalf of nobody: the way to start what several agents share."""
        return self.initiators.run(None, operation)

    # -- publication (for factories) -------------------------------------------------------------

    def enter(self, agent: Agent, owner: Context) -> "Callable[[], None]":
        """Take the agent's id. The answer leaves again, once; inside a creation listener it waits.

        Raises:
            AgentError: the id is taken, or is not the session's.
        """
        if agent.id != agent.session.id:
            raise AgentError(f"agent id {agent.id!r} is not the id of its session, {agent.session.id!r}")
        if agent.id in self._entries:
            raise AgentError(f"an agent with id {agent.id!r} is live already", code="AGENT_EXISTS")
        entry = _Entry(agent, owner)
        self._entries[agent.id] = entry

        def leave() -> None:
            entry.leaving = True
            if not entry.announcing:
                self._remove(entry)

        return leave

    def register(self, agent: Agent) -> Effect:
        """Publish an agent that somebody built without a factory, until the returned effect is undone.

        Raises:
            AgentError: as `enter` does.
            Exception: what a listener of `agent/created` raised; the agent has then left again.
        """
        owner = self.ctx

        def setup() -> "Callable[[], None]":
            leave = self.enter(agent, owner)
            try:
                self.announce(agent)
            except BaseException:
                leave()
                raise
            return leave

        return owner.effect(setup, f"agent {agent.id}")

    def depart(self, session_id: str, ending: "asyncio.Future[Any]") -> None:
        """The agent of that id is on its way out until `ending` is done."""
        self._departing[session_id] = ending

        def gone(done: "asyncio.Future[Any]") -> None:
            if self._departing.get(session_id) is done:
                del self._departing[session_id]

        ending.add_done_callback(gone)

    async def departed(self, session_id: str) -> None:
        """Wait until no agent of that id is on its way out. One that is live and well is not waited for."""
        while (ending := self._departing.get(session_id)) is not None:
            await asyncio.wait((ending,))
            await asyncio.sleep(0)

    def announce(self, agent: Agent) -> None:
        """Emit `agent/created`, once. A listener that raises vetoes: the caller has to leave again."""
        entry = self._entries[agent.id]
        entry.announcing = entry.announced = True
        try:
            self.owner_ctx.emit(AGENT_CREATED, AgentSubject(agent), subject=ScopeTarget(agent))
        finally:
            entry.announcing = False
            if entry.leaving:
                self._remove(entry)

    def _remove(self, entry: _Entry) -> None:
        if entry.gone:
            return
        entry.gone = True
        self._entries.pop(entry.agent.id, None)
        if entry.announced:
            subject = ScopeTarget(entry.agent)
            self.owner_ctx.emit(AGENT_DISPOSED, AgentSubject(entry.agent), subject=subject)
