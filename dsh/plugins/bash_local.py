"""Row `bash-local`: the shell without a fence. The one-row alternative to `bash-sandbox`."""

from dsh.capabilities.local_shell import LocalShell, ShellConfig
from dsh.capabilities.shell import SHELL
from dsh.capabilities.subprocess import SUBPROCESS
from dsh.kernel import Context

inject = [SUBPROCESS]
provide = [SHELL]
Config = ShellConfig


def apply(ctx: Context, config: ShellConfig) -> None:
    ctx.provide(SHELL, LocalShell(config, ctx.use(SUBPROCESS)))
