"""One agent from its making to its end: a transaction on the way in, a chain of undoing on the way out.

Nobody sees an agent before its setup is done. Whatever fails on the way, at any point, leaves no session, no
agent, no fiber and no listener behind, and pairs every announcement that began (`spec/agent-loop.md` §12).
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from dsh.agent.contract import (
    AGENT_SESSION_START,
    AgentHandle,
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
from dsh.kernel import Cancelled, CancelToken, Context, Effect, Scope, ScopeTarget, create_scope
from dsh.kernel.foreign import awaited, contained
from dsh.session.log import Session
from dsh.session.store import SESSIONS, SessionStore


class Obtained(NamedTuple):
    """A session that nobody has heard of yet, and how to give it back unused."""

    session: Session
    give_back: Callable[[], Awaitable[None]] | None = None


class Registries(NamedTuple):
    """Where an agent is published."""

    sessions: SessionStore
    agents: AgentRegistry


class Lifetime:
    """Makes and ends one agent. It ends with the context it was created from, and with the loop's row."""

    def __init__(
        self,
        services: LoopServices,
        registries: Registries,
        owner: Context,
        *tokens: CancelToken | None,
    ) -> None:
        """The agent is not made, or not finished, once any of the tokens is cancelled.

        Raises:
            KernelError: the owner or the loop accepts nothing any more.
        """
        self._services = services
        self._registries = registries
        self._owner = owner
        self._agent: LoopAgent | None = None
        self._scope: Scope | None = None
        self._leave: list[Callable[[], None]] = []
        self._give_back: Callable[[], Awaitable[None]] | None = None
        self._made = asyncio.Event()
        """The making is through, one way or the other."""
        self._ending: asyncio.Task[None] | None = None
        self._bonds: list[Effect] = []
        self._abort = CancelToken.any_of(*tokens)
        try:
            self._bind(owner, services.ctx)
        except BaseException:
            self._forget()
            raise

    def _bind(self, *contexts: Context) -> None:
        """End the agent when one of these contexts goes."""
        for ctx in contexts:
            self._bonds.append(ctx.effect(lambda: self._bond_gone, "agent"))

    # -- the way in ------------------------------------------------------------------------------

    async def begin(
        self,
        obtain: Callable[[], Awaitable[Obtained]],
        request: CreateAgent | ResumeAgent,
        source: SessionStartSource,
    ) -> AgentHandle:
        """Obtain the session, set the agent up, publish it.

        Raises:
            Cancelled: a token was, the owner went or the loop did. All of it has been undone.
            Exception: what failed. The same holds.
        """
        try:
            await self._make(obtain, request, source)
        except BaseException:
            self._made.set()
            await self._ended(keep_inbox=True)
            raise
        self._made.set()
        self._abort.detach()
        assert self._agent is not None
        return AgentHandle(self._agent, self.dispose)

    async def _make(
        self,
        obtain: Callable[[], Awaitable[Obtained]],
        request: CreateAgent | ResumeAgent,
        source: SessionStartSource,
    ) -> None:
        self._check()
        session, self._give_back = await self._obtained(obtain())
        self._check()
        agent = self._agent = LoopAgent(self._services, session, request.options, request.limits)
        self._scope = await create_scope(self._services.ctx, agent)
        agent.ctx = self._scope.ctx
        self._check()
        self._bind(self._services.ctx)  # once more: the latest goes first, so the turn ends before its scope
        if request.setup is not None:
            await self._set_up(request.setup, agent.ctx)
        self._publish(agent, source)

    def _check(self) -> None:
        """Everybody concerned is still there, and nobody has thought better of it."""
        self._abort.raise_if_cancelled()
        if not (self._owner.fiber.accepts_effects and self._services.ctx.fiber.accepts_effects):
            raise Cancelled("the owner of the agent is going")

    async def _obtained(self, work: Awaitable[Obtained]) -> Obtained:
        """The session, or at once the abort; a session that comes too late is given back."""
        task = asyncio.ensure_future(work)
        try:
            return await self._abort.race(task)
        except BaseException:
            task.add_done_callback(self._give_back_late)
            raise

    def _give_back_late(self, task: "asyncio.Future[Obtained]") -> None:
        if not task.cancelled() and task.exception() is None and (give_back := task.result().give_back):
            work = awaited(give_back(), "giving a session back")
            self._services.ctx.kernel.keep(work, "give a session back")

    async def _set_up(self, setup: Setup, ctx: Context) -> None:
        """Let the creator register things. An abort does not wait for a setup that goes on."""
        try:
            answer = setup(ctx)
        except BaseException as error:
            raise contained(error, "the setup of an agent")  # noqa: B904 -- the same one, or made of it
        if inspect.isawaitable(answer):
            task = asyncio.ensure_future(awaited(answer, "the setup of an agent"))
            try:
                answer = await self._abort.race(task)
            except asyncio.CancelledError:
                task.cancel()
                raise
        self._check()
        if answer is not None:
            if not callable(getattr(answer, "commit", None)):
                raise AgentError(
                    f"the setup of an agent answered {type(answer).__name__}",
                    hint="it answers nothing, or an object with a method `commit`",
                )
            try:
                answer.commit()
            except BaseException as error:
                raise contained(error, "the commit of a setup")  # noqa: B904 -- the same, or made of it
        self._check()

    def _publish(self, agent: LoopAgent, source: SessionStartSource) -> None:
        sessions, agents = agent.ctx.use(SESSIONS), self._registries.agents
        self._leave.append(sessions.enter(agent.session))
        self._leave.append(agents.enter(agent, self._owner))
        sessions.announce(agent.session)
        self._check()
        agents.announce(agent)
        self._check()
        if source == "resume":
            agent.recover()
        agent.publish()
        started = SessionStarted(agent, source)
        self._services.ctx.emit(AGENT_SESSION_START, started, subject=ScopeTarget(agent))
        self._check()

    # -- the way out -----------------------------------------------------------------------------

    async def dispose(self) -> None:
        """End the agent for good: what waits for it is dropped. All callers wait for the same end.

        Raises:
            Exception: what an undoing raised, or a group of them; all the rest was undone all the same.
        """
        await self._ended(keep_inbox=False)

    async def _bond_gone(self) -> None:
        """The owner or the loop goes: an agent that is still in the making undoes itself."""
        self._abort.cancel("the owner of the agent is going")
        await self._made.wait()
        await self._ended(keep_inbox=True)

    async def _ended(self, *, keep_inbox: bool) -> None:
        """The end, which the first caller begins: nobody but the holder of the handle drops what waits."""
        if self._ending is None:
            self._ending = self._services.ctx.kernel.keep(self._end(keep_inbox), "dispose agent")
            if self._agent is not None:
                self._registries.agents.depart(self._agent.id, self._ending)
        if self._ending is not asyncio.current_task():
            await asyncio.shield(self._ending)

    async def _end(self, keep_inbox: bool) -> None:
        agent, errors = self._agent, list[Exception]()
        self._abort.detach()
        if agent is not None:
            with _noted(errors, "closing the agent"):
                agent.close(keep_inbox=keep_inbox)
            await agent.when_idle()
        if self._scope is not None:
            with _noted(errors, "the agent's scope"):
                await self._scope.fiber.dispose()
        if agent is not None and self._leave:
            await self._flush(agent)
        while self._leave:
            with _noted(errors, "leaving a registry"):
                self._leave.pop()()
        if self._give_back is not None:
            with _noted(errors, "giving the session back"):
                await self._give_back()
        self._forget()
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ExceptionGroup("the end of an agent failed in several places", errors)

    async def _flush(self, agent: LoopAgent) -> None:
        """What the agent logged last becomes durable before its session leaves the store."""
        sessions = self._registries.sessions
        if sessions.get(agent.id) is not agent.session:
            return
        try:
            await sessions.flush(agent.session)
        except Exception as error:
            self._services.ctx.logger.error(
                "session %s could not be flushed: %s", agent.id, error, exc_info=error
            )

    def _forget(self) -> None:
        self._abort.detach()
        for bond in self._bonds:
            bond.release()


@contextmanager
def _noted(errors: list[Exception], who: str) -> Iterator[None]:
    """Go on after a failure of this part; it is kept."""
    try:
        yield
    except BaseException as error:
        errors.append(contained(error, who))
