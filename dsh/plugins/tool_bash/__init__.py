"""Row `tool-bash`: the tool `bash` over the shell service.

A non-zero exit is an ordinary result. The markers that tell how the command ended are its last lines;
they are protocol: displays and policies parse them (`spec/capabilities-core.md` §14).
"""

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from dsh.agent.guidance import explain_tool
from dsh.capabilities.retention import tail
from dsh.capabilities.sandbox import SANDBOX_POLICY, SandboxPolicy
from dsh.capabilities.shell import SHELL, Shell, ShellRequest, ShellResult, StreamText
from dsh.capabilities.shell_env import SHELL_ENV
from dsh.errors import CompositionError
from dsh.kernel import Context
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
BACKGROUND_NOTE = (
    "[processes of this command still run in the background; what they print is no longer shown, and they "
    "are ended with the run]"
)
DETACHED_NOTE = "[a process that this command detached still runs; it is not ended with the run]"
TAIL_BYTES = 24_000
"""Shown of a stream that was cut and is whole in a file: two of them fit into one result of 50,000 bytes."""
UNKILLABLE_NOTE = "[the command was killed but has not ended: the system does not let go of it]"

_STREAM = {
    "type": "object",
    "required": True,
    "additionalProperties": False,
    "properties": {
        "text": {"type": "string", "required": True},
        "truncated": {"type": "boolean", "required": True},
        "spillPath": {"type": "string"},
    },
}
_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "kind": {"type": "string", "enum": ["foreground"], "required": True},
        "exitCode": {"type": "json", "required": True},
        "signal": {"type": "json", "required": True},
        "timedOut": {"type": "boolean", "required": True},
        "aborted": {"type": "boolean", "required": True},
        "timeoutMs": {"type": "number", "required": True},
        "stdout": _STREAM,
        "stderr": _STREAM,
        "leftRunning": {"type": "boolean", "required": True},
        "detached": {"type": "boolean", "required": True},
        "sandbox": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "mode": {"type": "string", "required": True},
                "denied": {"type": "boolean", "required": True},
            },
        },
    },
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
        self._no_background = "nothing here holds background jobs" if background else "it is switched off"
        self._escalation = Escalation("command", shell.sandbox_mode is not None)

    def definition(self) -> ToolDefinition:
        parameters: dict[str, Mapping[str, Any]] = {
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
        return typed_tool(
            name="bash",
            description=self._escalation.description(DESCRIPTION),
            parameters=self._escalation.parameters(parameters),
            output=ToolOutput(_VALUE, self.render),
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
        if args.get("run_in_background") is True:
            raise ToolError(
                f"run_in_background is not available: {self._no_background}; "
                "leave it out, and bound the command by timeoutMs"
            )
        result = await self._shell.run(
            ShellRequest(
                command=args["command"],
                workdir=self._workdir(args.get("workdir"), execution, policy),
                timeout_ms=timeout_ms,
                dsh_env=self._ctx.use(SHELL_ENV).collect(execution.session),
                sandbox_policy=policy,
                signal=execution.signal,
            )
        )
        if result.aborted:
            raise AbortError(started=True)
        return _value(result)

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
        """What the model sees: the output, then a marker for each thing that was out of the ordinary."""
        text = _shown(value["stdout"])
        if stderr := _shown(value["stderr"]):
            text = _on_new_line(text, f"[stderr]\n{stderr}")
        text = text or "(no output)"
        sandbox = value.get("sandbox")
        if sandbox is not None and sandbox["denied"]:
            text = _on_new_line(text, self._escalation.denial(sandbox["mode"]))
        is_over = value["exitCode"] is not None or value["signal"] is not None
        if not is_over:
            text = _on_new_line(text, UNKILLABLE_NOTE)
        elif value["leftRunning"]:
            text = _on_new_line(text, BACKGROUND_NOTE)
        if value["detached"]:
            text = _on_new_line(text, DETACHED_NOTE)
        if value["timedOut"]:
            text = _on_new_line(text, f"[timed out after {value['timeoutMs']}ms]")
        if value["signal"] is not None:
            text = _on_new_line(text, f"[killed by signal: {value['signal']}]")
        elif value["exitCode"]:
            text = _on_new_line(text, f"[exit code: {value['exitCode']}]")
        return text


def _call_card(args: Args) -> "CallCard":
    from dsh.plugins.tool_bash import card  # only displays need it

    return card.call(args)


def _result_card(args: Args, outcome: "Outcome") -> "ResultCard | None":
    from dsh.plugins.tool_bash import card

    return card.result(args, outcome, has_no_end=UNKILLABLE_NOTE)


def _value(result: ShellResult) -> dict[str, Any]:
    value: dict[str, Any] = {
        "kind": "foreground",
        "exitCode": result.exit_code,
        "signal": result.signal,
        "timedOut": result.timed_out,
        "aborted": result.aborted,
        "timeoutMs": result.timeout_ms,
        "stdout": _stream_value(result.stdout),
        "stderr": _stream_value(result.stderr),
        "leftRunning": result.left_running,
        "detached": result.detached,
    }
    if result.sandbox is not None:
        value["sandbox"] = {"mode": result.sandbox.mode, "denied": result.sandbox.denied}
    return value


def _stream_value(stream: StreamText) -> dict[str, Any]:
    value: dict[str, Any] = {"text": stream.text, "truncated": stream.truncated}
    return value | ({"spillPath": stream.spill_path} if stream.spill_path else {})


def _shown(stream: Mapping[str, Any]) -> str:
    text: str = stream["text"]
    if not stream["truncated"]:
        return text
    path = stream.get("spillPath")
    if path is not None:
        kept = tail(text, TAIL_BYTES)
        text = kept.head + kept.tail
    return _on_new_line(text, f"[output truncated; full output: {path or '(unavailable)'}]")


def _on_new_line(text: str, line: str) -> str:
    return text + ("" if not text or text.endswith("\n") else "\n") + line


def apply(ctx: Context, config: Config) -> None:
    shell = ctx.use(SHELL)
    if shell.sandbox_mode is not None and ctx.get(SANDBOX_POLICY) is None:
        raise CompositionError(
            "row tool-bash: the shell confines but no row provides sandboxPolicy",
            hint="mount the sandbox-policy row, or bash-local in place of bash-sandbox",
        )
    ctx.use(TOOLS).register(Bash(ctx, shell, background=config.enable_run_in_background).definition())
    explain_tool(ctx, "bash", SECTION_ORDER, SECTION)
