"""The task of code that nobody waits for any more: it is ended with what it belongs to."""

import asyncio
from typing import Any

from dsh.kernel import Context
from dsh.kernel.task import retrieve

END_S = 1.0
"""How long the end of a context waits for a task that was left to it."""


def leave_with(ctx: Context, task: "asyncio.Task[Any]", who: str) -> None:
    """Let the task go on until it ends by itself, at most until the context is disposed."""
    if not ctx.fiber.accepts_effects:
        task.add_done_callback(retrieve)
        task.cancel()
        return

    async def stop() -> None:
        task.cancel()
        await asyncio.wait((task,), timeout=END_S)

    effect = ctx.effect(lambda: stop, f"abandoned {who}")

    def ended(done: "asyncio.Task[Any]") -> None:
        retrieve(done)
        effect.release()

    task.add_done_callback(ended)
