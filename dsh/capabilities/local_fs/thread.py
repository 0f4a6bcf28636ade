"""Blocking file work off the event loop: in a thread that knows when nobody wants its result any more."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from dsh.capabilities.local_fs.error import aborted
from dsh.kernel import CancelToken
from dsh.kernel.task import retrieve

T = TypeVar("T")


class Halt:
    """Asked by the work between its steps: raises `FS_ABORTED` once it should stop."""

    __slots__ = ("_signal", "_what", "abandoned")

    def __init__(self, signal: CancelToken | None, action: str, path: str) -> None:
        self._signal = signal
        self._what = (action, path)
        self.abandoned = False

    def check(self) -> None:
        if self.abandoned or (self._signal is not None and self._signal.cancelled):
            raise aborted(*self._what)


async def off_loop(work: Callable[[], T], halt: Halt) -> T:
    """Run `work` in a thread. It is waited for even when this task is cancelled, so that a lock held
    around the call covers all of it; the work is told through `halt`.
    """
    halt.check()
    future = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        halt.abandoned = True
        while not future.done():
            try:
                await asyncio.wait((future,))
            except asyncio.CancelledError:
                continue
        retrieve(future)
        raise
