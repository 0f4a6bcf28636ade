"""Row `tool-jobs`: the tools `job_output`, `job_list`, `job_kill`, and the notice that a job is over.

The notice is queued at the moment of the end. A job that was killed, or that somebody waits for, gets none
(`spec/capabilities-core.md` §16).
"""

from collections.abc import Mapping
from typing import Any, Literal
from weakref import WeakKeyDictionary

import msgspec

from dsh.agent.contract import AGENT_INBOX_CLAIMED, Agent, InboxClaimed
from dsh.agent.guidance import explain_tool
from dsh.agent.registry import AGENTS
from dsh.capabilities.bounds import Amount, TimerMs
from dsh.capabilities.jobs import JOBS, JOBS_SETTLED, Job, Jobs, JobSubject, told_status
from dsh.capabilities.retention import size_of, tail
from dsh.kernel import Cancelled, Context
from dsh.session.message import user_message
from dsh.tools.definition import Args, Resources, ToolDefinition, ToolOutput
from dsh.tools.error import AbortError, ToolError
from dsh.tools.execution import ToolCall, ToolExecution
from dsh.tools.presentation import GenericCall
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool
from dsh.unicode import valid

inject = [JOBS, TOOLS]
provide = ()

OWNER = "tool-jobs"
SECTION_ORDER = 106
SECTION = (
    "Background jobs: keep track of the ids of those you start. Do not ask for their output again and again: "
    "you are told when one is over, and `job_output` with `wait` waits for it. Before your final answer, "
    "collect what each job came to with `job_output`, or end it with `job_kill`: jobs end with your work."
)
SUMMARY_CHARS = 120
"""The longest summary of a notice."""
LABEL_CHARS = 200
"""How much of a label one line shows."""
NO_OUTPUT = "(no new output)"
NO_JOBS = "(no background jobs)"
CUT = "[earlier output left out]\n"

_TEXT = {"type": "string", "required": True}
_NUMBER = {"type": "number", "required": True}
_PUBLIC: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "id": _TEXT,
        "kind": _TEXT,
        "label": _TEXT,
        "status": _TEXT,
        "detail": {"type": "string"},
        "startedAt": _NUMBER,
        "finishedAt": {"type": "number"},
    },
}
_JOB: Mapping[str, Any] = {**_PUBLIC, "required": True}
_ID = {"type": "string", "required": True, "description": "The id of the job, such as `bash-1`."}


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    wait_timeout_ms: TimerMs = 30_000
    """How long `job_output` waits where the call does not say."""
    max_wait_timeout_ms: TimerMs = 600_000
    """The longest it waits, whatever the call says."""
    completion_delivery: Literal["wakeup", "quiet"] = "wakeup"
    """Whether the end of a job wakes its agent, or waits for the agent's next step."""
    max_consecutive_wakes: Amount = 3
    """How often that may happen in a row before a person says something."""

    def __post_init__(self) -> None:
        if self.wait_timeout_ms > self.max_wait_timeout_ms:
            raise ValueError(
                f"waitTimeoutMs is at most maxWaitTimeoutMs ({self.max_wait_timeout_ms}), "
                f"found {self.wait_timeout_ms}"
            )


class JobTools:
    """The bodies of the three tools."""

    def __init__(self, jobs: Jobs, config: Config) -> None:
        self._jobs, self._config = jobs, config

    def definitions(self) -> tuple[ToolDefinition, ...]:
        config = self._config
        return (
            typed_tool(
                name="job_output",
                description=(
                    "Read what a background job has printed since you last read it, and how it stands. With "
                    "`wait` it returns when the job is over or the time is; running out of time is no error."
                ),
                parameters={
                    "job_id": _ID,
                    "wait": {"type": "boolean", "description": "Wait until the job is over."},
                    "timeout_ms": {
                        "type": "number",
                        "description": (
                            f"How long to wait, in milliseconds: {config.wait_timeout_ms} if unset, at most "
                            f"{config.max_wait_timeout_ms}."
                        ),
                    },
                },
                output=ToolOutput(
                    {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {"text": _TEXT, "job": _JOB},
                    },
                    lambda args, value: value["text"],
                ),
                execute=self.output,
                resources=_touch,
                timeout_ms=None,
                present_call=lambda args: GenericCall(title=f"Output of {args['job_id']}", kind="read"),
            ),
            typed_tool(
                name="job_list",
                description="List your background jobs, those that are over too.",
                parameters={},
                output=ToolOutput({"type": "array", "items": _PUBLIC}, _render_list),
                execute=self.list,
                concurrency_safe=True,
                present_call=lambda args: GenericCall(title="Background jobs", kind="read"),
            ),
            typed_tool(
                name="job_kill",
                description="Ask a background job to end. Returns at once; `job_output` shows its end.",
                parameters={
                    "job_id": _ID,
                    "reason": {"type": "string", "description": "Why, for the job's own use."},
                },
                output=ToolOutput(
                    {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "outcome": {
                                "type": "string",
                                "enum": ["cancellation-requested", "already-finished"],
                                "required": True,
                            },
                            "job": _JOB,
                        },
                    },
                    _render_kill,
                ),
                execute=self.kill,
                resources=_touch,
                present_call=lambda args: GenericCall(title=f"End {args['job_id']}", kind="execute"),
            ),
        )

    async def output(self, args: Args, execution: ToolExecution) -> dict[str, Any]:
        job_id, caller = args["job_id"], _caller(execution)
        if args.get("wait"):
            ms = args.get("timeout_ms", self._config.wait_timeout_ms)
            if not ms > 0:
                raise ToolError(f"timeout_ms must be a positive number, got {ms}")
            most = self._config.max_wait_timeout_ms
            try:
                await self._jobs.wait(job_id, min(ms, most), caller, signal=execution.signal)
            except Cancelled:
                raise AbortError(started=True) from None
        body = valid(self._jobs.read(job_id, caller))
        job = self._jobs.get(job_id, caller)
        return {"text": _output_text(body, job), "job": _public(job)}

    async def list(self, args: Args, execution: ToolExecution) -> list[dict[str, Any]]:
        return [_public(job) for job in self._jobs.list(_caller(execution))]

    async def kill(self, args: Args, execution: ToolExecution) -> dict[str, Any]:
        job_id, caller = args["job_id"], _caller(execution)
        is_over = self._jobs.get(job_id, caller).is_over
        job = self._jobs.kill(job_id, caller, args.get("reason"))
        outcome = "already-finished" if is_over else "cancellation-requested"
        return {"outcome": outcome, "job": _public(job)}


class Notices:
    """Tells agents of jobs that are over. State: how often each was woken since a person spoke."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._ctx, self._config = ctx, config
        self._wakes: WeakKeyDictionary[Agent, int] = WeakKeyDictionary()

    def settled(self, subject: JobSubject) -> None:
        """Give the owner the notice: as a prompt of its own, or for whenever its next step comes."""
        agents = self._ctx.get(AGENTS)
        if subject.job.reported or subject.owner is None or agents is None:
            return
        agent = agents.get(subject.owner.id)
        if agent is None or agent is not subject.owner:
            return
        job, message = subject.job, user_message(notice(subject.job), _source(subject.job))
        wakes = self._wakes.get(agent, 0)
        may_wake = self._config.completion_delivery == "wakeup" and wakes < self._config.max_consecutive_wakes
        if may_wake and agent.status == "idle":
            self._wakes[agent] = wakes + 1
            agent.followup(message)
        else:
            agent.inject(message)
            self._ctx.logger.debug("the end of job %s waits for the next step of %s", job.id, agent.id)

    def claimed(self, claimed: InboxClaimed) -> None:
        """A person has spoken: the agent may be woken again."""
        if claimed.message["source"].get("kind") == "user":
            self._wakes.pop(claimed.agent, None)


def notice(job: Job) -> str:
    """What the model reads of a job that is over."""
    return (
        f"Background job {job.id} [{job.kind}] is over {told_status(job)} — {_label(job)}\n"
        f'Read its output with `job_output` (job_id "{job.id}").'
    )


def _source(job: Job) -> dict[str, Any]:
    summary = f"{job.kind} {' '.join(job.label.split())} {told_status(job)}"
    if len(summary) > SUMMARY_CHARS:
        summary = f"{summary[: SUMMARY_CHARS - 1]}…"
    return {"kind": "plugin", "plugin": OWNER, "form": "notice", "summary": summary}


def _output_text(body: str, job: Job) -> str:
    status = told_status(job)
    text = body or NO_OUTPUT
    limit = job.output_limit_bytes
    if limit is not None and size_of(text) + 1 + size_of(status) > limit:
        room = limit - size_of(status) - 1 - size_of(CUT)
        text = CUT + tail(text, room).tail if room > 0 else ""
    return text + ("" if not text or text.endswith("\n") else "\n") + status


def _label(job: Job | Mapping[str, Any]) -> str:
    label = " ".join((job.label if isinstance(job, Job) else str(job["label"])).split())
    return label if len(label) <= LABEL_CHARS else f"{label[: LABEL_CHARS - 1]}…"


def _public(job: Job) -> dict[str, Any]:
    out: dict[str, Any] = {"id": job.id, "kind": job.kind, "label": job.label, "status": job.status}
    if job.detail is not None:
        out["detail"] = job.detail
    out["startedAt"] = job.started_at
    if job.finished_at is not None:
        out["finishedAt"] = job.finished_at
    return out


def _render_list(args: Args, jobs: list[Mapping[str, Any]]) -> str:
    lines = (f"{job['id']} [{job['kind']}] {job['status']} — {_label(job)}" for job in jobs)
    return "\n".join(lines) or NO_JOBS


def _render_kill(args: Args, value: Mapping[str, Any]) -> str:
    job = value["job"]
    if value["outcome"] == "already-finished":
        return f"job {job['id']} was over already: {job['status']}"
    return f"job {job['id']} is asked to end; job_output shows when it is over"


def _touch(args: Args, call: ToolCall) -> Resources:
    """Calls about one job run one after the other."""
    return Resources(writes=frozenset({f"job:{args['job_id']}"}))


def _caller(execution: ToolExecution) -> str | None:
    return None if execution.session is None else execution.session.id


def apply(ctx: Context, config: Config) -> None:
    jobs, tools = ctx.use(JOBS), ctx.use(TOOLS)
    jobs.attach()
    for definition in JobTools(jobs, config).definitions():
        tools.register(definition)
    notices = Notices(ctx, config)
    ctx.on(JOBS_SETTLED, notices.settled)
    ctx.on(AGENT_INBOX_CLAIMED, notices.claimed)
    explain_tool(ctx, "job_output", SECTION_ORDER, SECTION)
