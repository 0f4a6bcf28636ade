"""What still runs in the background when the agent of a run is idle: how long it may, and how it is ended."""

import asyncio
import contextlib
from collections.abc import Sequence

from dsh.agent.contract import Agent
from dsh.capabilities.jobs import JOBS, JOBS_SETTLED, Job, Jobs
from dsh.kernel import Context
from dsh.kernel.foreign import bounded

RUN_DROPPED = "run/dropped"
"""`{kind, id, label}` of a piece of work that the end of the run has cut off (`design.md` §10.43)."""
REASON = "the run is over"
TOLD_CHARS = 60
"""How much of a job's label the line on standard error shows."""
LOGGED_CHARS = 500


class Background:
    """The background jobs of a process that has one agent to wait for."""

    def __init__(self, ctx: Context, agent: Agent, interrupted: asyncio.Event) -> None:
        self._ctx, self._agent, self._interrupted = ctx, agent, interrupted

    async def has_news(self, wait_s: float) -> bool:
        """Whether the end of a job has given the agent something to do, within the time.

        False at once where nothing runs, and as soon as nothing does or the run is interrupted.
        """
        jobs = self._ctx.get(JOBS)
        if jobs is None:
            return False
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_s
        settled = asyncio.Event()
        listening = self._ctx.on(JOBS_SETTLED, lambda _: settled.set())
        interrupted = asyncio.ensure_future(self._interrupted.wait())
        try:
            while self._agent.status == "idle" and jobs.running() and not interrupted.done():
                if (left_s := deadline - loop.time()) <= 0:
                    break
                settled.clear()
                news = asyncio.ensure_future(settled.wait())
                await asyncio.wait((news, interrupted), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                news.cancel()
        finally:
            interrupted.cancel()
            listening()
        return self._agent.status != "idle"

    def drop(self) -> Sequence[str]:
        """End what still runs and log it; the lines that say so."""
        jobs = self._ctx.get(JOBS)
        dropped = [] if jobs is None else [job for job in jobs.running() if _ended(jobs, job)]
        for job in dropped:
            label = bounded(" ".join(job.label.split()))[:LOGGED_CHARS]
            self._agent.session.append(
                RUN_DROPPED, {"kind": job.kind, "id": job.id, "label": label}, ignorable=True
            )
        if not dropped:
            return ()
        count = f"{len(dropped)} background job{'s' if len(dropped) > 1 else ''} still ran and"
        count += " were ended" if len(dropped) > 1 else " was ended"
        return (f"dsh: {count}: {', '.join(map(_told, dropped))}",)


def _ended(jobs: Jobs, job: Job) -> bool:
    """Ask it to end. False where somebody has asked before: that one knows."""
    if job.status == "stopping":
        return False
    with contextlib.suppress(Exception):  # it ends with its owner all the same, or is told as orphaned there
        jobs.kill(job.id, job.owner_session, REASON)
    return True


def _told(job: Job) -> str:
    label = " ".join(job.label.split())
    return f"{job.id} ({label if len(label) <= TOLD_CHARS else label[: TOLD_CHARS - 1] + '…'})"
