"""Work that a test ends by hand, and a loop with the two rows of jobs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from dsh.capabilities.agent import AgentRef
from dsh.capabilities.jobs import JOBS, JobHooks, JobOutcome, Jobs, JobSpec
from dsh.kernel import Context
from dsh.plugins import jobs, tool_jobs
from dsh.session.log import Session
from tests.agent.kit import Loop, Reply, loop

DONE = JobOutcome("completed", "exit code: 0")


@dataclass(frozen=True, eq=False)
class Stranger:
    """Looks like an agent and is none."""

    id: str
    session: Session
    ctx: Context


class Work:
    """A producer: ends when it is told, prints what it is told."""

    def __init__(self, *, ends_on_cancel: bool = True, refusal: Exception | None = None) -> None:
        self.printed = ""
        self.cancels: list[str | None] = []
        self.begun = 0
        self.done: asyncio.Future[JobOutcome] = asyncio.get_running_loop().create_future()
        self.refusal = refusal
        self.cancel_failure: BaseException | None = None
        self._ends_on_cancel = ends_on_cancel

    def end(self, outcome: JobOutcome = DONE) -> None:
        if not self.done.done():
            self.done.set_result(outcome)

    async def run(self) -> JobHooks:
        self.begun += 1
        if self.refusal is not None:
            raise self.refusal
        return JobHooks(cancel=self._cancel, done=self.done, open_output=self._open)

    def spec(self, owner: AgentRef | None = None, **changes: Any) -> JobSpec:
        return JobSpec(**{"kind": "bash", "label": "make", "owner": owner, "run": self.run, **changes})

    def _open(self) -> Callable[[], str]:
        at = 0

        def read() -> str:
            nonlocal at
            text, at = self.printed[at:], len(self.printed)
            return text

        return read

    def _cancel(self, reason: str | None) -> None:
        if self.cancel_failure is not None:
            raise self.cancel_failure
        self.cancels.append(reason)
        if self._ends_on_cancel:
            self.end(JobOutcome("killed", "signal: SIGTERM"))


def jobs_of(ctx: Context) -> Jobs:
    found = ctx.get(JOBS)
    assert found is not None
    return found


@asynccontextmanager
async def with_jobs(
    *replies: Reply, config: Mapping[str, Any] | None = None, tools: Mapping[str, Any] | None = None
) -> AsyncIterator[Loop]:
    rows = [(jobs, dict(config or {})), (tool_jobs, dict(tools or {}))]
    async with loop(*replies, rows=rows) as running:
        yield running


async def soon() -> None:
    """Let what is ready run, and what that makes ready."""
    for _ in range(10):
        await asyncio.sleep(0)
