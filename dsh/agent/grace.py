"""How long the loop waits for foreign code: without end while the turn lives, and not for ever after.

Once a turn is cancelled, tools, listeners, adapters and policies have one grace, together and counted from
the cancellation. What has not come back by then is given up: its task stays behind with the agent, and
nothing of what it may still answer is used (`design.md` §10.3).
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from dsh.agent.failure import AgentError
from dsh.agent.origin import note_origin
from dsh.kernel import CancelToken
from dsh.kernel.foreign import contained

T = TypeVar("T")

GRACE_S = 5.0
"""How long foreign code may go on after its turn was cancelled."""
LEAST_S = 0.1
"""What each wait has of it even when it is used up: enough for code that ends at once."""


class NoOutcome(AgentError):
    """Foreign code was given up, or cancelled its own task: what it did is unknown."""


class Grace:
    """The grace of one turn. State: when it ends, once the turn has been cancelled."""

    def __init__(
        self,
        signal: CancelToken,
        give_up: Callable[["asyncio.Task[Any]", str], None],
        seconds: float | None = None,
    ) -> None:
        """`give_up` takes over the task of code that is waited for no longer, and the code's name."""
        self._seconds = GRACE_S if seconds is None else seconds
        self.give_up = give_up
        """Takes over a task that nobody waits for any more."""
        self._begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._end_s = 0.0
        signal.on_cancel(self._begin)

    async def wait(
        self,
        work: Awaitable[T],
        who: str,
        give_up: Callable[["asyncio.Task[Any]", str], None] | None = None,
    ) -> T:
        """Wait for `work`, which `who` does, in a task of its own.

        Args:
            give_up: takes that task over in place of the one that all waits have.

        Raises:
            NoOutcome: it was given up, or its task was cancelled from within.
            Exception: what it raised, whatever that was.
        """
        task = asyncio.ensure_future(_contained(work, who))
        try:
            await asyncio.wait((task, self._begun), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                await asyncio.wait((task,), timeout=self._left_s())
        except asyncio.CancelledError:
            task.cancel()
            raise
        if not task.done():
            (give_up or self.give_up)(task, who)
            raise NoOutcome(f"{who} did not end when it was told to")
        if task.cancelled():
            raise NoOutcome(f"{who} cancelled its own task")
        return task.result()

    def _begin(self, reason: Any) -> None:
        self._end_s = self._now_s() + self._seconds
        if not self._begun.done():
            self._begun.set_result(None)

    def _left_s(self) -> float:
        return max(self._end_s - self._now_s(), LEAST_S)

    def _now_s(self) -> float:
        return self._begun.get_loop().time()


async def _contained(work: Awaitable[T], who: str) -> T:
    try:
        return await work
    except BaseException as error:
        failure = contained(error, who)
        note_origin(failure, who)
        raise failure  # noqa: B904 -- the same one, or made of it
