"""When a live session is written: some time after its first unwritten event, or at once at a barrier.

There is no queue here. The log itself is the queue; this decides when the next piece of it is taken.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from dsh.kernel.task import retrieve

RETRY_FIRST_S = 1.0
RETRY_LIMIT_S = 30.0
"""Waits between attempts after a failed background write double from the first to the limit."""
TELL_AFTER_S = 2.0
"""Failures that end sooner need no word: they ended by themselves, or a barrier told them to its caller."""


class Timer(Protocol):
    """What scheduling answers."""

    def cancel(self) -> None: ...


class Scheduler(Protocol):
    """`loop.call_later`, or a clock of a test."""

    def __call__(self, delay_s: float, callback: Callable[[], None], /) -> Timer: ...


class WriteBehind:
    """Timer, running write and barrier of one session.

    The window is fixed by its first event: later ones do not move it. Events that come during a write
    belong to the next one and open their own window.
    """

    def __init__(
        self,
        write: Callable[[], Awaitable[None]],
        is_dirty: Callable[[], bool],
        delay_s: float,
        *,
        schedule: Scheduler,
        on_trouble: Callable[[Exception], None],
    ) -> None:
        """`write` makes durable what is there when it starts; `is_dirty` says whether anything is left.

        `on_trouble` hears once of writes that have been failing for `TELL_AFTER_S`.
        """
        self._write = write
        self._is_dirty = is_dirty
        self._delay_s = delay_s
        self._schedule = schedule
        self._on_trouble = on_trouble
        self._alarm: Timer | None = None
        """Set by the first of a row of failures."""
        self._timer: Timer | None = None
        self._is_paused = False
        """The timer is a retry's: the next event replaces it by an ordinary window."""
        self._is_due = False
        self._running: asyncio.Task[None] | None = None
        self._barrier: asyncio.Task[None] | None = None
        self._failures = 0
        self._is_closed = False

    @property
    def is_idle(self) -> bool:
        """Nothing is waiting to be written and nothing is being written."""
        return self._running is None and self._barrier is None and not self._is_dirty()

    def touch(self) -> None:
        """An event was appended. The hot path."""
        if (self._timer is None or self._is_paused) and self._barrier is None and not self._is_closed:
            self._arm(self._delay_s, is_paused=False)

    async def flush(self) -> None:
        """Wait until everything appended before and during this call is durable; all callers share one wait.

        Raises:
            Exception: what the last write raised. Nothing is lost by it; the next write tries again.
        """
        if self.is_idle:
            return
        if self._barrier is None:
            self._barrier = asyncio.create_task(self._drain(), name="session flush")
            self._barrier.add_done_callback(retrieve)
        await asyncio.shield(self._barrier)

    def close(self) -> None:
        """Start nothing by itself any more; `flush` still works."""
        self._is_closed = True
        self._disarm()
        self._calm()

    def _arm(self, delay_s: float, *, is_paused: bool) -> None:
        self._disarm()
        self._is_paused = is_paused
        self._timer = self._schedule(delay_s, self._fire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._is_paused = None, False

    def _fire(self) -> None:
        self._timer, self._is_paused = None, False
        if self._running is not None:
            self._is_due = True
        elif self._barrier is None and self._is_dirty():
            self._running = asyncio.create_task(self._run(), name="session write")

    async def _run(self) -> None:
        try:
            while True:
                self._is_due = False
                await self._write()
                self._succeeded()
                if self._barrier is not None or not (self._is_due and self._is_dirty()):
                    return
        except Exception as error:
            self._failed(error)
        finally:
            self._running = None

    def _succeeded(self) -> None:
        self._failures = 0
        self._calm()

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._is_closed:
            return
        if self._failures == 1:
            self._alarm = self._schedule(TELL_AFTER_S, lambda: self._on_trouble(error))
        if self._barrier is None:
            wait_s = min(RETRY_FIRST_S * 2.0 ** (self._failures - 1), RETRY_LIMIT_S)
            self._arm(wait_s, is_paused=True)

    def _calm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None

    async def _drain(self) -> None:
        try:
            self._disarm()
            if self._running is not None:
                await asyncio.wait((self._running,))
            while self._is_dirty():
                await self._write()
                self._succeeded()
        except Exception as error:
            self._barrier = None
            self._failed(error)
            raise
        finally:
            self._barrier = None
            self._is_due = False
