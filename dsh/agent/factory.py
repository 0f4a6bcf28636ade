"""Makes the agents of a loop for the registry, on new sessions and on stored ones."""

import uuid

from dsh.agent.contract import AgentHandle, AgentOptions, CreateAgent, ResumeAgent
from dsh.agent.failure import AgentError
from dsh.agent.lifetime import Lifetime, Obtained, Registries
from dsh.agent.registry import AgentRegistry
from dsh.agent.services import LoopServices
from dsh.kernel import CancelToken, Context
from dsh.persistence.service import PERSISTENCE
from dsh.session.log import Session
from dsh.session.store import SessionStore
from dsh.session.value import MAX_SAFE_INT


class LoopFactory:
    """Implements `dsh.agent.registry.AgentFactory`. State: whether the loop goes."""

    def __init__(self, services: LoopServices, sessions: SessionStore, agents: AgentRegistry) -> None:
        self._services = services
        self._registries = Registries(sessions, agents)
        self._teardown = CancelToken()
        """Cancelled when the loop goes: no agent comes to be any more."""
        services.ctx.effect(lambda: lambda: self._teardown.cancel("the agent loop is going"), "agent factory")

    async def create(self, owner: Context, request: CreateAgent) -> AgentHandle:
        _check_options(request.options)
        session = self._prepared(request)

        async def obtain() -> Obtained:
            return Obtained(session)

        return await self._lifetime(owner, request).begin(obtain, request, "startup")

    async def resume(self, owner: Context, request: ResumeAgent) -> AgentHandle:
        _check_options(request.options)
        if self._registries.agents.get(request.session_id) is not None:
            raise AgentError(f"an agent with id {request.session_id!r} is live already", code="AGENT_EXISTS")
        persistence = self._services.ctx.get(PERSISTENCE)
        if persistence is None:
            raise AgentError(
                f"session {request.session_id!r} cannot be resumed: no persistence is mounted",
                hint="add row session-persistence-jsonl",
            )

        async def obtain() -> Obtained:
            prepared = await persistence.prepare(request.session_id)
            return Obtained(prepared.session, prepared.release)

        return await self._lifetime(owner, request).begin(obtain, request, "resume")

    def _lifetime(self, owner: Context, request: CreateAgent | ResumeAgent) -> Lifetime:
        return Lifetime(self._services, self._registries, owner, request.signal, self._teardown)

    def _prepared(self, request: CreateAgent) -> Session:
        session = self._registries.sessions.prepare(
            request.session_id or f"session-{uuid.uuid4()}",
            cwd=request.cwd,
            parent_session=request.parent_session,
            seed_length=request.seed_length,
            origin=request.origin,
            delegation_depth=request.delegation_depth,
            agent_preset=request.agent_preset,
            seed=request.seed,
        )
        if session.open_turn is not None:
            raise AgentError(
                f"the seed of session {session.id!r} ends inside turn {session.open_turn}",
                code="OPEN_TURN",
                hint="a seed ends with `turn/end` or before any turn",
            )
        return session


def _check_options(options: AgentOptions) -> None:
    limit: object = options.max_tokens
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MAX_SAFE_INT):
        raise AgentError(f"maxTokens of an agent is a positive integer up to 2^53-1, found {limit!r:.60}")
