"""Cooperative cancellation: a token that code inside a turn looks at and waits on.

`asyncio.CancelledError` means that a task or the whole process is going down. A cancelled token means
that somebody wants this piece of work to stop; the work decides where. The two never turn into each
other (`design.md` §4.6, §10.1).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from dsh.kernel.task import retrieve

T = TypeVar("T")


class Cancelled(Exception):
    """Work stopped because its token was cancelled. `reason` is whatever the canceller gave."""

    def __init__(self, reason: Any) -> None:
        super().__init__(f"cancelled: {reason!r}")
        self.reason = reason


class CancelToken:
    """Whether a piece of work should stop, and why. The first reason wins and never changes."""

    __slots__ = ("_callbacks", "_parents", "cancelled", "reason")

    def __init__(self) -> None:
        self.cancelled = False
        self.reason: Any = None
        self._callbacks: list[Callable[[Any], None]] = []
        self._parents: list[Callable[[], None]] = []

    @classmethod
    def any_of(cls, *tokens: "CancelToken | None") -> "CancelToken":
        """A token that is cancelled with the first of the given ones. Call `detach` when done with it."""
        fused = cls()
        for token in tokens:
            if token is not None:
                fused._parents.append(token.on_cancel(fused.cancel))
        return fused

    def cancel(self, reason: Any) -> None:
        """Cancel with a reason. A second call changes nothing."""
        if self.cancelled:
            return
        self.cancelled, self.reason = True, reason
        self.detach()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(reason)

    def detach(self) -> None:
        """Stop following the tokens this one was made of."""
        parents, self._parents = self._parents, []
        for undo in parents:
            undo()

    def on_cancel(self, callback: Callable[[Any], None]) -> Callable[[], None]:
        """Call `callback(reason)` at cancellation, at once if that has happened. Returns the undo."""
        if self.cancelled:
            callback(self.reason)
            return lambda: None
        self._callbacks.append(callback)

        def undo() -> None:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

        return undo

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` when the token is cancelled."""
        if self.cancelled:
            raise Cancelled(self.reason)

    async def wait(self) -> None:
        """Wait until the token is cancelled."""
        gate = asyncio.Event()
        undo = self.on_cancel(lambda _: gate.set())
        try:
            await gate.wait()
        finally:
            undo()

    async def race(self, awaitable: Awaitable[T]) -> T:
        """Wait for `awaitable` or for cancellation, whichever comes first.

        The loser is not stopped: a late result is dropped, a late exception is retrieved and ignored.

        Raises:
            Cancelled: the token was cancelled first.
        """
        work = asyncio.ensure_future(awaitable)
        if self.cancelled:
            work.add_done_callback(retrieve)
            raise Cancelled(self.reason)
        gate = asyncio.Event()
        waiter = asyncio.ensure_future(gate.wait())
        undo = self.on_cancel(lambda _: gate.set())
        try:
            await asyncio.wait((work, waiter), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                work.add_done_callback(retrieve)
                raise Cancelled(self.reason)
            return work.result()
        finally:
            undo()
            waiter.cancel()

    async def sleep(self, seconds: float) -> None:
        """Wait that long on a monotonic clock; raises `Cancelled` as soon as the token is cancelled."""
        task = asyncio.ensure_future(asyncio.sleep(seconds))
        try:
            await self.race(task)
        finally:
            task.cancel()
