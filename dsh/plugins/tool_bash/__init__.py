"""Row `tool-bash`: the tool `bash` over the shell service.

A non-zero exit is an ordinary result (`spec/capabilities-core.md` §14).
"""

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from dsh.agent.guidance import explain_tool
from dsh.capabilities.jobs import JOBS, JobError
from dsh.capabilities.sandbox import SANDBOX_POLICY, SandboxPolicy
from dsh.capabilities.shell import SHELL, Shell, ShellRequest
from dsh.capabilities.shell_env import SHELL_ENV
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.plugins.tool_bash.result import SCHEMA, UNKILLABLE_NOTE, background_value, foreground_value, render
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.error import AbortError, ToolError
from dsh.tools.escalation import Escalation
from dsh.tools.execution import ToolExecution
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

inject = [SHELL, SHELL_ENV, TOOLS]
provide = ()

SECTION_ORDER = 105
SECTION = (
    "Look at the end of every `bash` result: `[exit code: N]` means that the command failed, also when it "
    "printed something useful. No marker means success."
)
DESCRIPTION = (
    "Run a command with bash and return what it printed. Each call starts a fresh shell in the working "
    "directory: `cd` and variables do not last, so chain what belongs together with `&&`. There is no "
    "terminal and standard input is empty, so commands that would ask must be told the answer by flags. "
    "Output over the limit is cut to its end. Prefer `read`, `edit`, `glob` and `grep` for files."
)
_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "command": {"type": "string", "required": True, "description": "The command line for bash."},
    "description": {
        "type": "string",
        "description": "What the command does, in five to ten words, for whoever watches.",
    },
    "timeoutMs": {
        "type": "number",
        "description": "Stop the command after so many milliseconds. There is a default and a cap.",
    },
    "workdir": {
        "type": "string",
        "description": "Directory to run in, absolute or relative to the working directory.",
    },
}
_RUN_IN_BACKGROUND: Mapping[str, Any] = {
    "type": "boolean",
    "description": (
        "Start the command as a background job and return its id at once; it has no time limit. Read it with "
        "`job_output`. For servers and long builds, instead of `&`."
    ),
}


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `tool-bash` row."""

    enable_run_in_background: bool = True
    """Whether a call may ask for `run_in_background`. It is not offered while no row holds jobs, and a call
    that asks for it all the same is refused: run in the foreground it might never end.
    """


class Bash:
    """The body of the tool."""

    def __init__(self, ctx: Context, shell: Shell, *, background: bool = True) -> None:
        self._ctx = ctx
        self._shell = shell
        self._has_background = background
        self._escalation = Escalation("command", shell.sandbox_mode is not None)

    def definition(self, *, has_jobs: bool) -> ToolDefinition:
        parameters = dict(_PARAMETERS)
        if has_jobs and self._has_background:
            parameters["run_in_background"] = _RUN_IN_BACKGROUND
        return typed_tool(
            name="bash",
            description=self._escalation.description(DESCRIPTION),
            parameters=self._escalation.parameters(parameters),
            output=ToolOutput(SCHEMA, self.render),
            execute=self.execute,
            timeout_ms=None,
            present_call=_call_card,
            present_result=_result_card,
        )

    async def execute(self, args: Args, execution: ToolExecution) -> dict[str, Any]:
        for name in ("command", "description"):
            if name in args and not args[name].strip():
                raise ToolError(f"{name} must not be blank")
        if "\0" in args["command"]:
            raise ToolError("command must not hold a NUL character")
        timeout_ms = args.get("timeoutMs")
        if timeout_ms is not None and not (timeout_ms > 0 and math.isfinite(timeout_ms)):
            raise ToolError(f"timeoutMs must be a positive number, got {timeout_ms}")
        policy = await self._escalation.policy_of(self._ctx, execution, args)
        request = ShellRequest(
            command=args["command"],
            workdir=self._workdir(args.get("workdir"), execution, policy),
            timeout_ms=timeout_ms,
            dsh_env=self._ctx.use(SHELL_ENV).collect(execution.session),
            sandbox_policy=policy,
            signal=execution.signal,
        )
        if args.get("run_in_background") is True:
            return await self._start(request, execution)
        result = await self._shell.run(request)
        if result.aborted:
            raise AbortError(started=True)
        return foreground_value(result)

    async def _start(self, request: ShellRequest, execution: ToolExecution) -> dict[str, Any]:
        jobs = self._ctx.get(JOBS)
        if jobs is None or not self._has_background:
            why = "nothing here holds background jobs" if self._has_background else "it is switched off"
            raise ToolError(
                f"run_in_background is not available: {why}; leave it out, and bound the command by timeoutMs"
            )
        if execution.signal.cancelled:
            raise AbortError(started=False)
        from dsh.plugins.tool_bash.background import start_job

        request = msgspec.structs.replace(request, timeout_ms=None, signal=None)
        try:
            job = await start_job(jobs, self._shell, request, execution.agent, self._escalation)
        except JobError as error:
            raise ToolError(error.message) from error
        return background_value(job.id)

    @staticmethod
    def _workdir(asked: str | None, execution: ToolExecution, policy: SandboxPolicy | None) -> str | None:
        root = execution.cwd
        base = os.path.realpath(root) if root else (policy.workspace_root if policy else None)
        if not asked:
            if base is not None and not os.path.isdir(base):  # noqa: PTH112
                raise ToolError(f"the working directory {base!r} is gone; name another one with workdir")
            return base
        path = os.path.normpath(os.path.join(base or os.getcwd(), asked))  # noqa: PTH109, PTH118
        if not os.path.isdir(path):  # noqa: PTH112
            raise ToolError(f"workdir {path!r} is not a directory")
        return path

    def render(self, args: Args, value: Mapping[str, Any]) -> str:
        return render(value, self._escalation)


def _call_card(args: Args) -> "CallCard":
    from dsh.plugins.tool_bash import card  # only displays need it

    return card.call(args)


def _result_card(args: Args, outcome: "Outcome") -> "ResultCard | None":
    from dsh.plugins.tool_bash import card

    return card.result(args, outcome, has_no_end=UNKILLABLE_NOTE)


def apply(ctx: Context, config: Config) -> None:
    shell = ctx.use(SHELL)
    if shell.sandbox_mode is not None and ctx.get(SANDBOX_POLICY) is None:
        raise CompositionError(
            "row tool-bash: the shell confines but no row provides sandboxPolicy",
            hint="mount the sandbox-policy row, or bash-local in place of bash-sandbox",
        )
    bash = Bash(ctx, shell, background=config.enable_run_in_background)
    tools = ctx.use(TOOLS)
    registered = tools.register(bash.definition(has_jobs=False))

    def offer_background(inner: Context) -> None:
        nonlocal registered
        registered()
        registered = tools.register(bash.definition(has_jobs=True))
        inner.effect(lambda: withdraw_background, "run_in_background of bash")

    def withdraw_background() -> None:
        nonlocal registered
        registered()
        if ctx.fiber.is_active:
            registered = tools.register(bash.definition(has_jobs=False))

    if config.enable_run_in_background:
        ctx.inject([JOBS], offer_background)
    explain_tool(ctx, "bash", SECTION_ORDER, SECTION)
