"""What the parts of one step share: whose step it is, where in the turn it stands, how long to wait."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from dsh.agent.contract import Agent
from dsh.agent.failure import AgentError
from dsh.agent.grace import Grace
from dsh.agent.services import LoopServices
from dsh.agent.turn_routes import TurnRoutes
from dsh.kernel import CancelToken, Event, ScopeTarget
from dsh.session.log import Session

P = TypeVar("P")
T = TypeVar("T")


class StepScope(msgspec.Struct, frozen=True, eq=False):
    """One step of one turn, from its pre-step on. Does not change while the step lasts."""

    agent: Agent
    services: LoopServices
    turn: int
    step: int
    signal: CancelToken
    grace: Grace
    routes: TurnRoutes

    @property
    def session(self) -> Session:
        return self.agent.session

    async def ask(
        self,
        event: Event[P, Awaitable[T]],
        payload: P,
        inner: Callable[[], Awaitable[T]],
        is_fit: Callable[[object], bool],
        expected: str,
    ) -> T:
        """The answer of the agent's listeners, around the one that `inner` gives.

        Args:
            is_fit: whether this is an answer to the event; `expected` says in words what is.

        Raises:
            Cancelled: the turn's token, also where an answer came all the same.
            AgentError: a listener answered something else.
        """
        subject = ScopeTarget(self.agent)
        who = f"a listener of {event.name}"

        async def asked() -> T:
            return await self.agent.ctx.waterfall(event, payload, inner, subject=subject)

        answer = await self.grace.wait(asked(), who)
        self.signal.raise_if_cancelled()
        if not is_fit(answer):
            raise AgentError(f"{who} answered {type(answer).__name__}, expected {expected}")
        return answer
