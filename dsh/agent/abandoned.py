"""Code that was given up: it may still be at work, at most until its agent ends."""

import asyncio
from typing import Any

from dsh.agent.contract import Agent
from dsh.tools.leftover import leave_with


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
        leave_with(ctx, task, who)
