"""Background jobs of a live replay: they run, and their ends are told where they were told.

When a job ends is chance, so the notice that its row would make is not waited for: the recorded one is given,
as soon as it is the next to come and the job is over. A job that somebody waits for gives no notice.
"""

import asyncio
import re

from dsh.capabilities.bounds import MAX_TIMER_MS
from dsh.capabilities.jobs import JOBS, JOBS_CHANGED, Job, JobSubject, told_status
from dsh.errors import DshError
from dsh.kernel import Context
from dsh.session.message import Message, text_of

NOTICES = "tool-jobs"
"""The plugin that tells of ends."""


class LiveJobs:
    """State: who waits for each job that has begun, by id."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._endings: dict[str, asyncio.Task[Job]] = {}

    def install(self, ctx: Context) -> None:
        """Wait for the jobs of the agent whose scope this is."""
        ctx.on(JOBS_CHANGED, self._changed)

    def close(self) -> None:
        for ending in self._endings.values():
            ending.cancel()

    def ending(self, notice: Message) -> asyncio.Task[Job] | None:
        """The running job that has to end before this message is given; None where it waits for none."""
        ending = self._named_by(notice)
        return None if ending is None or ending.done() else ending

    def is_over(self, notice: Message) -> bool:
        """Whether nothing keeps this message from being given.

        Raises:
            DshError: it tells of a job that has not begun, or of another end than the job has come to.
        """
        if notice["source"].get("plugin") != NOTICES:
            return True
        ending = self._named_by(notice)
        if ending is None:
            raise DshError("the end of a background job is told, and no such job has begun")
        if not ending.done():
            return False
        job = ending.result()
        if told_status(job) not in text_of(notice):
            raise DshError(f"background job {job.id} has ended otherwise: {told_status(job)}")
        return True

    def _named_by(self, notice: Message) -> asyncio.Task[Job] | None:
        if notice["source"].get("plugin") != NOTICES:
            return None
        text = text_of(notice)
        named = (job_id for job_id in self._endings if re.search(rf"(?<![\w-]){job_id}(?![\w-])", text))
        return next((self._endings[job_id] for job_id in named), None)

    def _changed(self, subject: JobSubject) -> None:
        job, jobs = subject.job, self._ctx.get(JOBS)
        if jobs is not None and job.id not in self._endings:
            wait = jobs.wait(job.id, MAX_TIMER_MS, job.owner_session)
            self._endings[job.id] = asyncio.ensure_future(wait)
