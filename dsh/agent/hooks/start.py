"""The hooks of a session's start, which the first step waits for, but not for ever."""

import asyncio

from dsh.agent.hooks.outcome import Outcome
from dsh.kernel import CancelToken


class Beginning:
    """State: what they came to, once they are through, and whether anybody still waits for that."""

    def __init__(self) -> None:
        self.token = CancelToken()
        """Cancelled when the agent is gone."""
        self._outcome: Outcome | None = None
        self._done = asyncio.Event()
        self._is_given_up = False

    def finish(self, outcome: Outcome) -> bool:
        """They are through. True: nobody waits any more, so the context has to go its own way."""
        self._outcome = outcome
        self._done.set()
        return self._is_given_up

    async def wait(self, signal: CancelToken, seconds: float) -> Outcome | None:
        """What they came to; None if that takes longer, and then nobody will ask again.

        Raises:
            Cancelled: the turn is over.
        """
        if self._outcome is None:
            undo = signal.on_cancel(lambda _: self._done.set())
            try:
                async with asyncio.timeout(seconds):
                    await self._done.wait()
            except TimeoutError:
                self._is_given_up = True
                return None
            finally:
                undo()
            signal.raise_if_cancelled()
        return self._outcome
