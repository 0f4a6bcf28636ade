"""Row `bash-sandbox`: the shell under the session's sandbox policy. It never runs a command less confined
than the policy says: what cannot be confined is refused.
"""

from collections.abc import Callable

import msgspec

from dsh.capabilities.local_shell import SETTINGS_NAMESPACE, LocalShell, ShellConfig
from dsh.capabilities.sandbox import SANDBOX_POLICY, SandboxMode, SandboxPolicyService, SandboxUnavailable
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
        policy = request.sandbox_policy or self._policy.resolve()
        if policy.mode != "danger-full-access":
            raise SandboxUnavailable(
                f"no sandbox can confine commands to mode {policy.mode!r} here; the command was not run",
                hint="choose danger-full-access to run commands unconfined",
            )
        result = await self._shell.run(request)
        return msgspec.structs.replace(result, sandbox=SandboxReport(policy.mode))


def apply(ctx: Context, config: ShellConfig) -> None:
    section = install_settings_section(ctx, SETTINGS_NAMESPACE, ShellConfig, config)
    ctx.provide(SHELL, SandboxedShell(section.get, ctx.use(SUBPROCESS), ctx.use(SANDBOX_POLICY)))
