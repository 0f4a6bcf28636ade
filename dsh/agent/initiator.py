"""Which agent's driver is running the present code: an ambient value, for attribution and nothing else.

It says who caused a piece of work. It grants nothing, and the agent it names may be gone. Tasks inherit
it; it does not cross threads, queues, processes or the wire. What is shared between agents (timers, pools,
watchers) is to be started inside `without_initiator` (`spec/agent-loop.md` §12.1).
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast
from weakref import ref

from dsh.agent.contract import Agent
from dsh.agent.failure import AgentError
from dsh.kernel import Context

T = TypeVar("T")

DRAIN_S = 5.0
"""How long the end of the service waits for boundaries that are still open, as for any foreign code."""


class _Boundary:
    """One piece of work on behalf of an agent, or of nobody, inside the one that it was begun in."""

    __slots__ = ("_agent", "home", "outer")

    def __init__(self, agent: Agent | None, home: "Initiators | None", outer: "_Boundary | None") -> None:
        self._agent = None if agent is None else ref(agent)
        self.home = home
        self.outer = outer

    @property
    def agent(self) -> Agent | None:
        """Whom it names; nobody any more once that agent is gone.

        Timers and tasks that outlive an agent keep the boundary, and must not keep the agent and its log.
        """
        return None if self._agent is None else self._agent()

    @property
    def is_valid(self) -> bool:
        return self.home is None or not self.home.is_over

    def is_within(self, other: "_Boundary") -> bool:
        at: _Boundary | None = self
        while at is not None and at is not other:
            at = at.outer
        return at is other


_current: ContextVar[_Boundary | None] = ContextVar("dsh_initiator", default=None)


def current_initiator() -> Agent | None:
    """The agent whose driver chain runs this code, if one does."""
    boundary = _current.get()
    return boundary.agent if boundary is not None and boundary.is_valid else None


class Initiators:
    """The boundaries of one registry. State: those that are open, and whether the service has ended."""

    def __init__(self, ctx: Context) -> None:
        """`ctx` is the registry's own; the boundaries end with its fiber, after all who use the service."""
        self.is_over = False
        self._fiber = ctx.fiber
        self._logger = ctx.logger
        self._open: dict[_Boundary, Agent | None] = {}
        self._closed = asyncio.Event()
        """Set whenever a boundary has been closed."""
        ctx.effect(lambda: self._end, "initiators")

    @contextmanager
    def entered(self, agent: Agent | None) -> Iterator[None]:
        """Inside the block, and in every task that is started in it, `agent` is the initiator.

        For drivers, whose end the loop sees to: the end of the service does not wait for the block.
        """
        token = _current.set(boundary := _Boundary(agent, self, _current.get()))
        try:
            yield
        finally:
            _current.reset(token)
            boundary.outer = None

    def run(self, agent: Agent | None, operation: Callable[[], T]) -> T:
        """Call `operation` on behalf of `agent`; with an awaitable answer, what comes of it as well.

        Raises:
            AgentError: the service is going (code INITIATORS_GONE), and somebody is to be named.
        """
        self._admit(agent)
        boundary = _Boundary(agent, self, _current.get())
        token = _current.set(boundary)
        try:
            answer = operation()
        except BaseException:
            boundary.outer = None
            raise
        finally:
            _current.reset(token)
        if isinstance(answer, asyncio.Future):
            self._open[boundary] = agent
            answer.add_done_callback(lambda _: self._close(boundary))
        elif inspect.isawaitable(answer):
            return cast("T", self._awaited(boundary, agent, answer))
        else:
            boundary.outer = None
        return answer

    async def _awaited(self, boundary: _Boundary, agent: Agent | None, answer: Awaitable[Any]) -> Any:
        try:
            self._admit(agent)
        except AgentError:
            if inspect.iscoroutine(answer):
                answer.close()
            raise
        self._open[boundary] = agent
        token = _current.set(boundary)
        try:
            return await answer
        finally:
            _current.reset(token)
            self._close(boundary)

    def _close(self, boundary: _Boundary) -> None:
        boundary.outer = None
        self._open.pop(boundary, None)
        self._closed.set()

    def _admit(self, agent: Agent | None) -> None:
        if agent is None:
            return
        fiber = self._fiber
        while fiber.accepts_effects:
            if fiber.parent is None:
                return
            fiber = fiber.parent.fiber
        raise AgentError("the registry of agents is going: nothing is begun any more", code="INITIATORS_GONE")

    async def _end(self) -> None:
        """Wait for what is open, except the chain that this end was called from: it waits for us."""
        here = _current.get()
        deadline = asyncio.get_running_loop().time() + DRAIN_S
        try:
            async with asyncio.timeout_at(deadline):
                while any(not _leads_to(here, boundary) for boundary in self._open):
                    self._closed.clear()
                    await self._closed.wait()
        except TimeoutError:
            self._logger.warning("work on behalf of agents did not end; it goes on on behalf of nobody")
        self.is_over = True


def _leads_to(here: _Boundary | None, boundary: _Boundary) -> bool:
    return here is not None and here.is_within(boundary)
