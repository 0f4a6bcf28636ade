"""Work that goes on in the background of an agent, as a service: what runs, how it ends, what it printed.

Kept in memory only. What a job came to reaches the log as the text of tool results and notices
(`spec/capabilities-core.md` §16).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

import msgspec

from dsh.capabilities.agent import AgentRef
from dsh.errors import DshError
from dsh.kernel import CancelToken, Effect, Event, ServiceKey

JobStatus = Literal["running", "stopping", "completed", "killed", "failed"]
JobEnd = Literal["completed", "killed", "failed"]

MODEL = "model"
"""The reader that `job_output` is. Displays have names of their own."""


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
    open_output: Callable[[], Callable[[], str]] | None = None
    """A new reader from the beginning: it answers what was printed since its last call.

    Unset: the job has one text at its end, `final_output`.
    """
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


def told_status(job: Job) -> str:
    """How a job stands, as the model reads it in outputs and notices."""
    detail = f", {' '.join(job.detail.split())}" if job.detail else ""
    return f"[status: {job.status}{detail}]"


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

    def read(self, job_id: str, caller: str | None, *, reader: str = MODEL) -> str:
        """What is new of its output for this reader; readers take nothing from one another.

        A job with one text has none before its end, and then the same each time. Once it is over, a read by
        `MODEL` means that its end is known.
        """

    def kill(self, job_id: str, caller: str | None, reason: str | None = None) -> Job:
        """Ask it to end; returns at once. On a job that is over nothing happens.

        Raises:
            Exception: what its cancel raised; nothing has changed then.
        """

    async def wait(
        self, job_id: str, ms: float, caller: str | None, *, signal: CancelToken | None = None
    ) -> Job:
        """Return when it is over or the time is.

        Raises:
            Cancelled: `signal` was cancelled while it ran.
        """

    def running(self) -> Sequence[Job]:
        """All of them, whoever owns them: for the end of a run."""

    def attach(self) -> Effect:
        """Say that the agents of the caller's scope can look after jobs; until then none starts for them."""


JOBS: ServiceKey[Jobs] = ServiceKey("jobs")


class JobSubject(msgspec.Struct, frozen=True, eq=False):
    """Payload of `jobs/changed` and `jobs/settled`."""

    job: Job
    owner: AgentRef | None


JOBS_CHANGED: Event[JobSubject, None] = Event(
    "jobs/changed", "emit", contained=True, scoped=lambda subject: subject.owner
)
"""A job has another status: it has begun, was asked to end, or is over."""
JOBS_SETTLED: Event[JobSubject, None] = Event(
    "jobs/settled", "emit", contained=True, scoped=lambda subject: subject.owner
)
"""A job is over. Heard last, after all who waited for it were released."""
