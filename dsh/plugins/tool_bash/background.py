"""A command as a background job: how it begins, what is read of it, how it ended."""

from collections.abc import Callable

from dsh.capabilities.agent import AgentRef
from dsh.capabilities.jobs import Job, JobHooks, JobOutcome, Jobs, JobSpec
from dsh.capabilities.shell import Shell, ShellProcess, ShellRequest
from dsh.plugins.tool_bash.result import on_new_line
from dsh.tools.escalation import Escalation


async def start_job(
    jobs: Jobs, shell: Shell, request: ShellRequest, owner: AgentRef | None, escalation: Escalation
) -> Job:
    """Start the command as a job.

    Raises:
        JobError: there is no room for it.
        SpawnError, SandboxUnavailable: as `Shell.start`; there is no job.
    """

    async def run() -> JobHooks:
        process = await shell.start(request)
        return JobHooks(
            cancel=lambda reason: process.kill(),
            done=_outcome(process),
            open_output=lambda: reader(process, escalation),
        )

    return await jobs.start(JobSpec(kind="bash", label=request.command, owner=owner, run=run))


async def _outcome(process: ShellProcess) -> JobOutcome:
    await process.done
    match process.status:
        case "failed":
            return JobOutcome("failed", process.failure)
        case "killed":
            return JobOutcome("killed", f"signal: {process.signal}" if process.signal else None)
        case _:
            return JobOutcome("completed", f"exit code: {process.exit_code}")


def reader(process: ShellProcess, escalation: Escalation) -> Callable[[], str]:
    """A function that answers what was printed since its last call; readers do not disturb one another."""
    stdout = stderr = 0

    def read() -> str:
        nonlocal stdout, stderr
        delta = process.read_from(stdout, stderr)
        stdout, stderr = delta.next_stdout, delta.next_stderr
        text = delta.text
        if delta.lossy:
            paths = [path for path in (delta.stdout_spill_path, delta.stderr_spill_path) if path]
            where = ", ".join(paths) or "(unavailable)"
            text = on_new_line(text, f"[some output was dropped from memory; full output: {where}]")
        if process.status == "failed":
            text = on_new_line(text, f"[the command was not run: {process.failure}]")
        elif process.sandbox is not None and process.sandbox.denied:
            text = on_new_line(text, escalation.denial(process.sandbox.mode))
        return text

    return read
