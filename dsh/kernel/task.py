"""Tasks of the kernel's own: who cancelled one, and what one needs that nobody waits for any more."""

import asyncio
from typing import Any


class KeptTask(asyncio.Task[Any]):
    """A task that knows whether it is being ended, or has only cancelled itself."""

    is_ended_from_outside = False
    """Somebody else has cancelled it."""

    def cancel(self, msg: Any = None) -> bool:
        try:
            is_own = asyncio.current_task() is self
        except RuntimeError:  # no loop runs
            is_own = False
        if not is_own:
            self.is_ended_from_outside = True
        return super().cancel(msg)


def retrieve(future: "asyncio.Future[Any]") -> None:
    """Take note of how it ended, so that asyncio does not complain of an exception that nobody has read.

    A callback for `add_done_callback`: whoever needs the outcome awaits it, or has told of it already.
    """
    if not future.cancelled():
        future.exception()
