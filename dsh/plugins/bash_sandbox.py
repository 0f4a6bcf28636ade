"""Row `bash-sandbox`: the shell under the session's sandbox policy. It never runs a command less confined
than the policy says: what cannot be confined is refused.
"""

from collections.abc import Callable

import msgspec

from dsh.capabilities.background_shell import BackgroundCommand, Verdict
from dsh.capabilities.local_shell import SETTINGS_NAMESPACE, LocalShell, ShellConfig, bash_argv
from dsh.capabilities.sandbox import (
    SANDBOX_POLICY,
    SandboxMode,
    SandboxPolicy,
    SandboxPolicyService,
    SandboxUnavailable,
)
from dsh.capabilities.settings_section import install_settings_section
from dsh.capabilities.shell import SHELL, SandboxReport, ShellRequest, ShellResult
from dsh.capabilities.subprocess import SUBPROCESS, Subprocess
from dsh.kernel import Context

inject = [SUBPROCESS, SANDBOX_POLICY]
provide = [SHELL]
sections = {SETTINGS_NAMESPACE: ShellConfig}
Config = ShellConfig


class SandboxedShell:
    """Asks the policy before each command. Implements `dsh.capabilities.shell.Shell`."""

    def __init__(
        self, config: Callable[[], ShellConfig], subprocess: Subprocess, policy: SandboxPolicyService
    ) -> None:
        self._shell = LocalShell(config, subprocess)
        self._policy = policy

    @property
    def sandbox_mode(self) -> SandboxMode:
        return self._policy.default_mode

    async def run(self, request: ShellRequest) -> ShellResult:
        policy = self._checked(request)
        result = await self._shell.run(request)
        return msgspec.structs.replace(result, sandbox=SandboxReport(policy.mode))

    async def start(self, request: ShellRequest) -> BackgroundCommand:
        policy = self._checked(request)
        argv = bash_argv(request)
        report = Verdict(SandboxReport(policy.mode))
        return await self._shell.start_argv(argv, request, judge=lambda status, stderr: report)

    def _checked(self, request: ShellRequest) -> SandboxPolicy:
        policy = request.sandbox_policy or self._policy.resolve()
        if policy.mode != "danger-full-access":
            raise SandboxUnavailable(
                f"no sandbox can confine commands to mode {policy.mode!r} here; the command was not run",
                hint="choose danger-full-access to run commands unconfined",
            )
        return policy


def apply(ctx: Context, config: ShellConfig) -> None:
    section = install_settings_section(ctx, SETTINGS_NAMESPACE, ShellConfig, config)
    ctx.provide(SHELL, SandboxedShell(section.get, ctx.use(SUBPROCESS), ctx.use(SANDBOX_POLICY)))
