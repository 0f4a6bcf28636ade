"""A fake clock for asyncio: time passes when nothing is ready, and at once.

Whoever sleeps is woken in the order of the clock, so a test of minutes takes no time and gives the same
interleaving in every run. Not for tests with threads, processes or sockets, whose time passes outside.
"""

import asyncio
import selectors


class Standstill(AssertionError):
    """Nothing is ready and nobody sleeps: whatever is waited for will never come."""


class _Jumping(selectors.SelectSelector):
    """Where a selector would wait for a time, this one lets the time pass."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events:
            return events
        if timeout is None:
            raise Standstill("nothing is ready and nobody sleeps, so this loop would wait for ever")
        self.passed_s += max(timeout, 0)
        return []


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop on the fake clock, for `asyncio.Runner(loop_factory=VirtualTimeLoop)`. Starts at 0 s.

    `run_until_complete` raises `Standstill` instead of waiting for ever.
    """

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.passed_s
