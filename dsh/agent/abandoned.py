"""Code that was given up after a cancellation or a deadline: it may still be at work, at most until its agent ends."""

import asyncio
from typing import Any

from dsh.agent.contract import Agent
from dsh.kernel.task import retrieve

END_S = 1.0
"""How long the end of the agent waits for the task of code that was given up."""


class Abandoned:
    """What one agent has given up. State: the names, in order."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.names: list[str] = []

    def take(self, task: "asyncio.Task[Any]", who: str) -> None:
        """Take over a task that nobody waits for any more."""
        ctx = self._agent.ctx
        self.names.append(who)
        ctx.logger.warning("%s did not end when it was told to; it was given up", who)
        task.add_done_callback(retrieve)

        async def stop() -> None:
            task.cancel()
            await asyncio.wait((task,), timeout=END_S)

        ctx.effect(lambda: stop, f"abandoned {who}")
