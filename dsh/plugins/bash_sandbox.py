"""Row `bash-sandbox`: the shell under the session's sandbox policy. It never runs a command less confined
than the policy says: what cannot be confined is refused.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from dsh.capabilities.background_shell import BackgroundCommand, Verdict
from dsh.capabilities.confined_end import ConfinedEnd, StatusPipe, judge, status_pipe
from dsh.capabilities.local_shell import SETTINGS_NAMESPACE, LocalShell, ShellConfig, bash_argv
from dsh.capabilities.sandbox import (
    SANDBOX,
    SANDBOX_POLICY,
    Confined,
    Sandbox,
    SandboxMode,
    SandboxPolicy,
    SandboxPolicyService,
    SandboxUnavailable,
)
from dsh.capabilities.settings_section import install_settings_section
from dsh.capabilities.shell import SHELL, SandboxReport, ShellRequest, ShellResult
from dsh.capabilities.subprocess import SUBPROCESS, ExitStatus, SpawnError, Subprocess
from dsh.errors import DshError
from dsh.kernel import Context

inject = [SUBPROCESS, SANDBOX, SANDBOX_POLICY]
provide = [SHELL]
sections = {SETTINGS_NAMESPACE: ShellConfig}
Config = ShellConfig

CANNOT_ENTER = "bwrap: Can't chdir to "
"""Bubblewrap's word for a directory that is not there within its walls."""
LEFT = b"left\n"
WATCH = """
exec {err}>&2 2>/dev/null
bash -c "$1" 2>&"$err" {err}>&- FD>&-
code=$?
for each in /proc/[0-9]*; do
  [ "$each" = /proc/1 ] || [ "$each" = /proc/$$ ] || {
    read -r line < "$each/stat" && case ${line##*) } in [ZX]*) ;; *) echo left >&FD; break ;; esac
  }
done
exit $code
"""
"""Runs the command in a view of its own processes, and says on FD whether it left any behind."""


class SandboxedShell:
    """Asks the policy before each command. Implements `dsh.capabilities.shell.Shell`."""

    def __init__(
        self,
        config: Callable[[], ShellConfig],
        subprocess: Subprocess,
        sandbox: Sandbox,
        policy: SandboxPolicyService,
    ) -> None:
        self._config = config
        self._shell = LocalShell(config, subprocess)
        self._sandbox = sandbox
        self._policy = policy

    @property
    def sandbox_mode(self) -> SandboxMode:
        return self._policy.default_mode

    async def run(self, request: ShellRequest) -> ShellResult:
        request, policy = self._resolved(request)
        if policy.mode == "danger-full-access":
            result = await self._shell.run(request)
            return msgspec.structs.replace(result, sandbox=SandboxReport(policy.mode))
        with status_pipe() as status, status_pipe() as left:
            confined = await self._confined(request, policy, status, left)
            with self._blamed(confined, request):
                result = await self._shell.run_argv(
                    confined.argv,
                    request,
                    dies_with_parent=not confined.dies_with_parent,
                    pass_fds=(status.fd, left.fd) if confined.ends_children else (status.fd,),
                )
            end = judge(
                confined,
                status.read(),
                exit_code=result.exit_code,
                was_killed=result.timed_out or result.aborted,
                stderr=result.stderr.text,
            )
            if (error := self._error(confined, end, request)) is not None:
                raise error
            return msgspec.structs.replace(
                result,
                sandbox=SandboxReport(policy.mode, end.denied, confined.enforcement),
                ended_children=left.read() == LEFT,
                # what is still seen of a runner that takes all with it is about to be gone
                left_running=result.left_running and not confined.ends_children,
            )

    async def start(self, request: ShellRequest) -> BackgroundCommand:
        request, policy = self._resolved(request)
        if policy.mode == "danger-full-access":
            report = Verdict(SandboxReport(policy.mode))
            return await self._shell.start_argv(bash_argv(request), request, judge=lambda *_: report)
        status = StatusPipe()
        try:
            confined = await self._confined(request, policy, status, None)

            def verdict(ended: ExitStatus, stderr: str) -> Verdict:
                end = judge(
                    confined, status.read(), exit_code=ended.exit_code, was_killed=False, stderr=stderr
                )
                error = self._error(confined, end, request)
                report = SandboxReport(policy.mode, end.denied, confined.enforcement)
                return Verdict(report, error.message if error is not None else None)

            with self._blamed(confined, request):
                command = await self._shell.start_argv(
                    confined.argv,
                    request,
                    judge=verdict,
                    dies_with_parent=not confined.dies_with_parent,
                    pass_fds=(status.fd,),
                )
        except BaseException:
            status.read()
            raise
        status.close_writing()
        return command

    def _resolved(self, request: ShellRequest) -> tuple[ShellRequest, SandboxPolicy]:
        """The request with its policy and its directory settled."""
        policy = request.sandbox_policy or self._policy.resolve()
        workdir = request.workdir or self._config().cwd or str(Path.cwd())
        return msgspec.structs.replace(request, sandbox_policy=policy, workdir=workdir), policy

    async def _confined(
        self, request: ShellRequest, policy: SandboxPolicy, status: StatusPipe, left: StatusPipe | None
    ) -> Confined:
        argv = bash_argv(request)
        confined = await self._sandbox.confine(argv, policy, cwd=request.workdir, status_fd=status.fd)
        if left is None or not confined.ends_children:
            return confined
        watched = ("bash", "-p", "-c", WATCH.replace("FD", str(left.fd)), "bash", request.command)
        return msgspec.structs.replace(confined, argv=(*confined.argv[: -len(argv)], *watched))

    @contextmanager
    def _blamed(self, confined: Confined, request: ShellRequest) -> Iterator[None]:
        """A start that fails because the runner has gone is the sandbox's failure."""
        try:
            yield
        except SpawnError as error:
            if shutil.which(confined.argv[0]) is not None:
                raise
            raise self._error(confined, ConfinedEnd(failure=error.message), request) or error from None

    def _error(self, confined: Confined, end: ConfinedEnd, request: ShellRequest) -> DshError | None:
        """Why the command was not run, if it was not: the sandbox's fault, unless it is the machine's or the
        command's own.
        """
        if end.failure is None:
            return None
        if shutil.which("bash", path=request.env.get("PATH")) is None:
            return SpawnError("cannot start 'bash': there is no such program on PATH")
        if end.failure.startswith(CANNOT_ENTER):
            return SpawnError(
                f"cannot start 'bash': confined commands cannot see {request.workdir!r}; use the workspace "
                "or $TMPDIR"
            )
        self._sandbox.doubt()
        return SandboxUnavailable(
            f"the sandbox ({confined.runner}) failed, the command was not run: {end.failure}",
            hint="dsh doctor tells what works here and what does not",
        )


def apply(ctx: Context, config: ShellConfig) -> None:
    section = install_settings_section(ctx, SETTINGS_NAMESPACE, ShellConfig, config)
    ctx.provide(
        SHELL,
        SandboxedShell(section.get, ctx.use(SUBPROCESS), ctx.use(SANDBOX), ctx.use(SANDBOX_POLICY)),
    )
