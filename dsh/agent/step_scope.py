"""What the parts of one step share: whose step it is, where in the turn it stands, when to stop."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from dsh.agent.transcript import Transcript
from dsh.kernel import CancelToken, Event, ScopeTarget
from dsh.session.log import Session

if TYPE_CHECKING:
    from dsh.agent.driver import LoopAgent

P = TypeVar("P")
R = TypeVar("R")


class StepScope:
    """One step of one turn. Does not change while the step lasts."""

    __slots__ = ("agent", "session", "signal", "step", "transcript", "turn")

    def __init__(self, agent: "LoopAgent", turn: int, step: int, signal: CancelToken) -> None:
        self.agent = agent
        self.session: Session = agent.session
        self.transcript: Transcript = agent.transcript
        self.turn = turn
        self.step = step
        self.signal = signal

    def waterfall(self, event: Event[P, R], payload: P, inner: Callable[[], R]) -> R:
        """Dispatch to the agent's listeners."""
        return self.agent.ctx.waterfall(event, payload, inner, subject=ScopeTarget(self.agent))
