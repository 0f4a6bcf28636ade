"""What an agent is doing; the public status is only whether a driver runs (`spec/agent-loop.md` §2)."""

import msgspec

from dsh.agent.contract import AgentStatus
from dsh.kernel import CancelToken


class Idle(msgspec.Struct):
    """Nothing runs."""

    last_turn: int
    """The number of the last turn in the log, 0 when there is none."""


class Maintenance(msgspec.Struct):
    """A maintenance job holds the agent; for everybody else it is idle."""

    token: CancelToken
    last_turn: int
    wake_requested: bool = False

    def drop_queued(self) -> None:
        """A cancel dropped what waits, so nobody is to be woken for it."""
        self.wake_requested = False


class Running(msgspec.Struct):
    """A driver runs: `turn` is the open or last turn, `step` its open or last step (0 before the first)."""

    token: CancelToken
    turn: int
    step: int = 0
    wake_requested: bool = False
    drops_claimed: bool = False
    """What the turn has claimed and not taken in is dropped when it ends, and does not wait again."""

    def drop_queued(self) -> None:
        """A cancel dropped what waits, so what the turn has claimed goes as well."""
        self.wake_requested, self.drops_claimed = False, True

    def next_turn(self) -> None:
        """Another turn begins in the same driver. After a cancel none does, so there is nothing to forget."""
        self.token, self.step = CancelToken(), 0


Phase = Idle | Maintenance | Running


def status_of(phase: Phase) -> AgentStatus:
    """What the outside sees of a phase."""
    return "running" if isinstance(phase, Running) else "idle"
