"""A clock that only the test moves."""

import asyncio
from collections.abc import Callable


class Handle:
    """A timer that was set."""

    def __init__(self, at: float, callback: Callable[[], None]) -> None:
        self.at, self.callback = at, callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualClock:
    """Stands in for `loop.call_later`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.handles: list[Handle] = []

    def __call__(self, delay_s: float, callback: Callable[[], None], /) -> Handle:
        handle = Handle(self.now + delay_s, callback)
        self.handles.append(handle)
        return handle

    @property
    def pending(self) -> list[float]:
        """When the timers that are set will fire."""
        return [handle.at for handle in self.handles if not handle.is_cancelled]

    async def advance(self, seconds: float) -> None:
        """Move on, firing what is due, and let tasks run."""
        self.now = round(self.now + seconds, 6)
        for handle in [h for h in self.handles if h.at <= self.now + 1e-9]:
            self.handles.remove(handle)
            if not handle.is_cancelled:
                handle.callback()
        await settle()


async def settle() -> None:
    """Let everything that can run without time passing run."""
    for _ in range(20):
        await asyncio.sleep(0)
