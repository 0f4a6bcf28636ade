"""What the parts of one step share: whose step it is, where in the turn it stands, how long to wait."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from dsh.agent.contract import Agent
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

    async def ask(self, event: Event[P, Awaitable[T]], payload: P, inner: Callable[[], Awaitable[T]]) -> T:
        """The answer of the agent's listeners, around the one that `inner` gives.

        Raises:
            Cancelled: the turn's token, also where an answer came all the same.
        """
        subject = ScopeTarget(self.agent)
        asked = self.agent.ctx.waterfall(event, payload, inner, subject=subject)
        answer = await self.grace.wait(asked, f"a listener of {event.name}")
        self.signal.raise_if_cancelled()
        return answer
