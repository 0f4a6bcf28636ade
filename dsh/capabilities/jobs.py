"""Work that goes on in the background of an agent, as a service: what runs, how it ends, what it printed.

Kept in memory only. What a job came to reaches the log as the text of tool results and notices
(`spec/capabilities-core.md` §16).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

import msgspec

from dsh.capabilities.agent import AgentRef
from dsh.errors import DshError
from dsh.kernel import CancelToken, Event, ServiceKey

JobStatus = Literal["running", "stopping", "completed", "killed", "failed"]
JobEnd = Literal["completed", "killed", "failed"]


class JobError(DshError):
    """A job that cannot be started, or is not there for this caller. Has no code."""


class JobOutcome(msgspec.Struct, frozen=True):
    """How a job ended."""

    status: JobEnd
    detail: str | None = None
    """Such as `exit code: 1`."""


class JobHooks(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What a producer gives the registry once its work has begun."""

    cancel: Callable[[str | None], None]
    """Ask the work to end, with a reason where there is one; returns at once."""
    done: Awaitable[JobOutcome]
    """Ends with the work. Raising is `failed`."""
    read_output: Callable[[], str] | None = None
    """What was printed since the last read; unset: the job has one text at its end, `final_output`."""
    final_output: Callable[[], str] | None = None


class JobSpec(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A job to start."""

    kind: str
    """Such as `bash`; ids are `<kind>-<n>`."""
    label: str
    owner: AgentRef | None = None
    output_limit_bytes: int | None = None
    run: Callable[[], Awaitable[JobHooks]]
    """Begins the work. If it raises, there is no job."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is at this moment."""

    id: str
    kind: str
    label: str
    status: JobStatus
    started_at: int
    """Milliseconds since the epoch."""
    finished_at: int | None = None
    detail: str | None = None
    owner_session: str | None = None
    output_limit_bytes: int | None = None
    reported: bool = False
    """Its end was told, or need not be."""

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "killed", "failed")


class Jobs(Protocol):
    """The registry. A job with an owner is there only for callers of the same session.

    `caller` is the session id of who asks. Every method may raise `JobError`.
    """

    async def start(self, spec: JobSpec) -> Job:
        """Begin a job.

        Raises:
            JobError: nothing holds jobs for this owner, the owner has ended, or it has too many.
        """

    def list(self, caller: str | None) -> Sequence[Job]:
        """In the order in which they were started, ended ones too."""

    def get(self, job_id: str, caller: str | None) -> Job:
        """Raises `JobError` where there is none for this caller."""

    def read(self, job_id: str, caller: str | None) -> str:
        """What is new of its output."""

    def kill(self, job_id: str, caller: str | None, reason: str | None = None) -> Job:
        """Ask it to end; returns at once. On a job that is over nothing happens."""

    async def wait(
        self, job_id: str, ms: float, caller: str | None, *, signal: CancelToken | None = None
    ) -> Job:
        """Return when it is over or the time is."""

    def running(self) -> Sequence[Job]:
        """All of them, whoever owns them: for the end of a run."""


JOBS: ServiceKey[Jobs] = ServiceKey("jobs")


class JobSettled(msgspec.Struct, frozen=True, eq=False):
    """Payload of `jobs/settled`."""

    job: Job
    owner: AgentRef | None


JOBS_SETTLED: Event[JobSettled, None] = Event(
    "jobs/settled", "emit", contained=True, scoped=lambda settled: settled.owner
)
"""A job is over. Heard after all who waited for it were released."""
