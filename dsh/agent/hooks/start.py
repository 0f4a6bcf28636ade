"""The hooks of a session's start, which the first step waits for, but not for ever."""

import asyncio

from dsh.agent.hooks.dialect import Point
from dsh.agent.hooks.outcome import Outcome
from dsh.kernel import CancelToken


class Beginning:
    """State: what they came to, once they are through, and whether anybody has waited in vain."""

    def __init__(self, point: Point) -> None:
        self.point = point
        self.token = CancelToken()
        """Cancelled when the agent is gone."""
        self._outcome: Outcome | None = None
        self._done = asyncio.Event()
        self._is_given_up = False

    def finish(self, outcome: Outcome) -> None:
        """They are through."""
        self._outcome = outcome
        self._done.set()

    async def wait(self, signal: CancelToken, seconds: float) -> Outcome | None:
        """What they came to; None if that takes longer, and then nobody waits again.

        Raises:
            Cancelled: the turn is over.
        """
        if self._outcome is None and not self._is_given_up:
            undo = signal.on_cancel(lambda _: self._done.set())
            try:
                async with asyncio.timeout(seconds):
                    await self._done.wait()
            except TimeoutError:
                self._is_given_up = True
                return None
            finally:
                undo()
                if self._outcome is None:
                    self._done.clear()
            signal.raise_if_cancelled()
        return self._outcome
