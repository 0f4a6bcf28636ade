"""The shell that both shell rows share: bash in a fresh process, with bounded time and output.

It lies here and not in a row because a row never imports another row.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from dsh.capabilities import scratch
from dsh.capabilities.background_shell import BackgroundCommand, Judge, no_judge
from dsh.capabilities.bounds import Amount, TimerMs
from dsh.capabilities.shell import ShellRequest, ShellResult, StreamText
from dsh.capabilities.subprocess import Captured, Collect, SpawnError, SpawnSpec, Subprocess
from dsh.capabilities.terminal_text import shown
from dsh.kernel import CancelToken

PLAIN_TERMINAL = {"NO_COLOR": "1", "TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat"}
TIMEOUT = "BASH_TIMEOUT"


class ShellConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the rows `bash-local` and `bash-sandbox`, and of the settings section `shell`."""

    cwd: str | None = None
    """Where commands run that name no directory; unset: the working directory of the process."""
    timeout_ms: TimerMs = 120_000
    """How long a command may run that asks for no time of its own."""
    max_timeout_ms: TimerMs = 600_000
    """The longest time that a command may ask for."""
    max_output_bytes: Amount = 64_000
    """Kept of each stream; the tail is what the model sees."""
    max_spill_bytes: Amount = 64 * 1024 * 1024
    """A longer stream than `maxOutputBytes` is kept whole in a file, unless it is longer than this."""
    grace_ms: TimerMs = 3_000
    """From SIGTERM to SIGKILL."""


SETTINGS_NAMESPACE = "shell"


class LocalShell:
    """Runs commands with bash, unconfined. Implements `dsh.capabilities.shell.Shell`.

    The parts that take an argument vector serve a shell that confines.
    """

    sandbox_mode = None

    def __init__(self, config: Callable[[], ShellConfig], subprocess: Subprocess) -> None:
        """`config` is asked before each command."""
        self._config = config
        self._subprocess = subprocess

    async def run(self, request: ShellRequest) -> ShellResult:
        return await self.run_argv(bash_argv(request), request)

    async def start(self, request: ShellRequest) -> BackgroundCommand:
        return await self.start_argv(bash_argv(request), request)

    async def run_argv(
        self,
        argv: Sequence[str],
        request: ShellRequest,
        *,
        dies_with_parent: bool = True,
        pass_fds: tuple[int, ...] = (),
    ) -> ShellResult:
        """Run exactly this program with the request's directory, environment and limits.

        Args:
            dies_with_parent: False for a program that sees to that itself.
            pass_fds: descriptors that the program inherits; they stay the caller's.
        """
        config = self._config()
        timeout_ms = _timeout_ms(config, request.timeout_ms)
        fused = CancelToken.any_of(request.signal)
        spec = self._spec(argv, request, fused, dies_with_parent=dies_with_parent, pass_fds=pass_fds)
        timer = asyncio.get_running_loop().call_later(timeout_ms / 1000, fused.cancel, TIMEOUT)
        try:
            process = self._subprocess.spawn(spec)
            status = await process.finish()
        finally:
            timer.cancel()
            fused.detach()
        timed_out = fused.reason == TIMEOUT
        return ShellResult(
            exit_code=status.exit_code,
            signal=status.signal,
            timed_out=timed_out,
            aborted=fused.cancelled and not timed_out,
            timeout_ms=timeout_ms,
            stdout=_stream(process.stdout.read()),
            stderr=_stream(process.stderr.read()),
            left_running=status.left_running,
            detached=status.detached,
        )

    async def start_argv(
        self,
        argv: Sequence[str],
        request: ShellRequest,
        *,
        judge: Judge = no_judge,
        dies_with_parent: bool = True,
        pass_fds: tuple[int, ...] = (),
    ) -> BackgroundCommand:
        """Start exactly this program; `judge` is asked once it has ended."""
        spec = self._spec(argv, request, None, dies_with_parent=dies_with_parent, pass_fds=pass_fds)
        return BackgroundCommand(self._subprocess.spawn(spec), judge)

    def _spec(
        self,
        argv: Sequence[str],
        request: ShellRequest,
        signal: CancelToken | None,
        *,
        dies_with_parent: bool,
        pass_fds: tuple[int, ...],
    ) -> SpawnSpec:
        config = self._config()
        limits = Collect(request.max_output_bytes or config.max_output_bytes, config.max_spill_bytes)
        return SpawnSpec(
            argv=argv,
            cwd=request.workdir or config.cwd or str(Path.cwd()),
            stdin="ignore" if request.stdin is None else request.stdin,
            stdout=limits,
            stderr=limits,
            grace_ms=config.grace_ms,
            env={**PLAIN_TERMINAL, **temp_variables(request), **request.env, **request.dsh_env},
            signal=signal,
            dies_with_parent=dies_with_parent,
            pass_fds=pass_fds,
        )


def bash_argv(request: ShellRequest) -> list[str]:
    """The command line of a request, in a fresh shell that is no login shell."""
    return ["bash", "-c", request.command]


def temp_variables(request: ShellRequest) -> dict[str, str]:
    """Where the session's commands keep temporary files; nothing for a command of no session."""
    policy = request.sandbox_policy
    folder = policy.temp_folder if policy is not None else None
    if folder is None and (session := request.dsh_env.get("DSH_SESSION_ID")):
        folder = str(scratch.session_folder(session))
    return dict.fromkeys(("TMPDIR", "TMP", "TEMP"), folder) if folder is not None else {}


def _timeout_ms(config: ShellConfig, asked: float | None) -> int:
    if asked is not None and not (asked > 0 and math.isfinite(asked)):
        raise SpawnError(f"a timeout must be a positive number of milliseconds, got {asked}")
    return math.ceil(min(asked or config.timeout_ms, config.max_timeout_ms))


def _stream(captured: Captured) -> StreamText:
    return StreamText(shown(captured), captured.lossy, captured.spill_path, captured.text)
