"""Row `tool-bash-persistent`: the tool `bash` over one shell for each agent, in which `cd`, variables and
functions last. It takes the place of `tool-bash`.

The shell runs on a terminal of its own under the session's sandbox policy; a policy that changes between two
calls costs the shell (`spec/capabilities-core.md` §15).
"""

import asyncio
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from dsh.agent.guidance import explain_tool
from dsh.capabilities.agent import AgentRef
from dsh.capabilities.bounds import TimerMs
from dsh.capabilities.local_shell import PLAIN_TERMINAL, temp_variables
from dsh.capabilities.sandbox import SANDBOX, SANDBOX_POLICY, SandboxPolicy, SandboxUnavailable
from dsh.capabilities.shell import ShellRequest
from dsh.capabilities.shell_env import SHELL_ENV
from dsh.capabilities.subprocess import SUBPROCESS
from dsh.kernel import Cancelled, Context
from dsh.plugins.tool_bash_persistent.call import Ran
from dsh.plugins.tool_bash_persistent.shell import ARGV, PersistentShell
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.error import AbortError, ToolError
from dsh.tools.execution import ToolExecution
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool

inject = [SUBPROCESS, SHELL_ENV, TOOLS]
provide = ()

SECTION_ORDER = 105
SECTION = (
    "`bash` keeps one shell: the directory, variables and functions of a call are there in the next one. "
    "`[exit code: N]` at the end of a result means that the command failed; no marker means success."
)
DESCRIPTION = (
    "Run a command in a bash shell that lives on between calls, and return what it printed; `cd`, variables "
    "and functions last. Nobody can answer a command that asks something: it is interrupted. A command that "
    "runs too long takes the shell along. Send a server to the background with `&` and its output to a file."
)
CHANGED_NOTE = "[the sandbox policy has changed: this is a fresh shell]"
LOST_NOTE = "[the beginning of the output was lost]"
WAITING_NOTE = "[the command waited for input, which it cannot get here, and was interrupted]"
FRESH_NOTE = "[the shell was ended; the next call starts a fresh one]"
_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "outcome": {
            "type": "string",
            "enum": ["completed", "exited", "timed-out", "waiting"],
            "required": True,
        },
        "text": {"type": "string", "required": True},
        "clippedBytes": {"type": "number", "required": True},
        "isLost": {"type": "boolean", "required": True},
        "isFresh": {"type": "boolean", "required": True},
        "isOver": {"type": "boolean", "required": True},
        "exitCode": {"type": "json", "required": True},
        "signal": {"type": "json", "required": True},
        "timeoutMs": {"type": "number", "required": True},
    },
}


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the `tool-bash-persistent` row."""

    backend_type: Literal["shell"] = "shell"
    """What keeps the shell. There is one kind."""
    timeout_ms: TimerMs = 300_000
    """How long one command may run."""
    max_output_chars: Annotated[int, msgspec.Meta(ge=100, le=10_000_000)] = 16_000
    """Shown of one call's output, in bytes of UTF-8; its beginning is kept."""
    grace_ms: TimerMs = 3_000
    """From SIGTERM to SIGKILL when the shell is ended."""
    description: str = DESCRIPTION
    """What the model is told the tool does."""


class _Kept(msgspec.Struct):
    """One agent's shell, and under which policy it runs."""

    turn: asyncio.Lock
    shell: PersistentShell | None = None
    policy: SandboxPolicy | None = None


class PersistentBash:
    """The body of the tool. State: the shells of the agents that live."""

    def __init__(self, ctx: Context, config: Config) -> None:
        self._ctx = ctx
        self._config = config
        self._kept: dict[AgentRef, _Kept] = {}
        ctx.effect(lambda: self._close_all, "persistent shells")

    def definition(self) -> ToolDefinition:
        return typed_tool(
            name="bash",
            description=self._config.description,
            parameters={
                "command": {"type": "string", "required": True, "description": "The command line for bash."}
            },
            output=ToolOutput(_VALUE, render),
            execute=self.execute,
            timeout_ms=None,
        )

    async def execute(self, args: Args, execution: ToolExecution) -> dict[str, Any]:
        command: str = args["command"]
        if not command.strip():
            raise ToolError("command must not be blank")
        if "\0" in command:
            raise ToolError("command must not hold a NUL character")
        agent = execution.agent
        if agent is None:
            raise ToolError("bash keeps its shell for an agent, and this call comes from none")
        kept = self._kept_of(agent)
        async with kept.turn:
            try:
                shell, is_fresh = await self._shell_of(kept, execution)
                ran = await shell.run(command, self._config.timeout_ms / 1000, execution.signal)
            except Cancelled as cancelled:
                raise AbortError(started=True) from cancelled
        return _value(ran, is_fresh=is_fresh, timeout_ms=self._config.timeout_ms)

    def _kept_of(self, agent: AgentRef) -> _Kept:
        kept = self._kept.get(agent)
        if kept is None:
            kept = self._kept[agent] = _Kept(asyncio.Lock())

            async def drop() -> None:
                self._kept.pop(agent, None)
                if kept.shell is not None:
                    await kept.shell.wait_closed()

            agent.ctx.effect(lambda: drop, "persistent shell")
        return kept

    async def _shell_of(self, kept: _Kept, execution: ToolExecution) -> tuple[PersistentShell, bool]:
        """The agent's shell, started now if there is none that fits; and whether it replaces one."""
        service = self._ctx.get(SANDBOX_POLICY)
        policy = service.resolve(execution.session) if service is not None else None
        if kept.shell is not None and not kept.shell.is_over and kept.policy == policy:
            return kept.shell, False
        is_fresh = kept.shell is not None and kept.policy != policy
        if kept.shell is not None:
            await kept.shell.wait_closed()
            kept.shell = None
        kept.policy = policy
        kept.shell = await self._open(policy, execution)
        return kept.shell, is_fresh

    async def _open(self, policy: SandboxPolicy | None, execution: ToolExecution) -> PersistentShell:
        cwd = _directory(execution.cwd or (policy.workspace_root if policy is not None else None))
        argv: tuple[str, ...] = ARGV
        if policy is not None and policy.mode != "danger-full-access":
            sandbox = self._ctx.get(SANDBOX)
            if sandbox is None:
                raise SandboxUnavailable(
                    f"no row confines commands to mode {policy.mode!r}; the command was not run",
                    hint="mount the sandbox row",
                )
            argv = (await sandbox.confine(argv, policy, cwd=cwd)).argv
        managed = self._ctx.use(SHELL_ENV).collect(execution.session)
        request = ShellRequest(command="", sandbox_policy=policy, dsh_env=managed)
        return await PersistentShell.open(
            self._ctx.use(SUBPROCESS),
            argv,
            cwd,
            {**PLAIN_TERMINAL, **temp_variables(request), **managed},
            grace_ms=self._config.grace_ms,
            max_bytes=self._config.max_output_chars,
        )

    async def _close_all(self) -> None:
        shells = [kept.shell for kept in self._kept.values() if kept.shell is not None]
        self._kept.clear()
        await asyncio.gather(*(shell.wait_closed() for shell in shells))


def _directory(root: str | None) -> str:
    path = os.path.realpath(root or os.getcwd())  # noqa: PTH109
    if not os.path.isdir(path):  # noqa: PTH112
        raise ToolError(f"the working directory {path!r} is gone")
    return path


def _value(ran: Ran, *, is_fresh: bool, timeout_ms: int) -> dict[str, Any]:
    return {
        "outcome": ran.outcome,
        "text": ran.text,
        "clippedBytes": ran.clipped_bytes,
        "isLost": ran.is_lost,
        "isFresh": is_fresh,
        "isOver": ran.is_over,
        "exitCode": ran.exit_code,
        "signal": ran.signal,
        "timeoutMs": timeout_ms,
    }


def render(args: Args, value: Mapping[str, Any]) -> str:
    """What the model sees: the output, then a line for each thing that was out of the ordinary."""
    text: str = value["text"]
    lines = []
    if value["clippedBytes"]:
        lines.append(
            f"[output clipped: {value['clippedBytes']} more bytes; send it to a file to see the rest]"
        )
    outcome = value["outcome"]
    if outcome == "timed-out":
        lines.append(f"[timed out after {value['timeoutMs']}ms]")
    elif outcome == "waiting":
        lines.append(WAITING_NOTE)
    elif outcome == "exited":
        how = (
            f"killed by signal: {value['signal']}" if value["signal"] else f"exited: code {value['exitCode']}"
        )
        lines.append(f"[shell {how}]")
    if value["isOver"]:
        lines.append(FRESH_NOTE)
    if outcome == "completed" and value["exitCode"]:
        lines.append(f"[exit code: {value['exitCode']}]")
    before = [CHANGED_NOTE] if value["isFresh"] else []
    before += [LOST_NOTE] if value["isLost"] else []
    text = "\n".join([*before, text]) if text or not before else "\n".join(before)
    text = text or "(no output)"
    for line in lines:
        text += ("" if text.endswith("\n") else "\n") + line
    return text


def apply(ctx: Context, config: Config) -> None:
    ctx.use(TOOLS).register(PersistentBash(ctx, config).definition())
    explain_tool(ctx, "bash", SECTION_ORDER, SECTION)
