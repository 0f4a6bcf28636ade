"""Row `bash-local`: the shell without a fence. The one-row alternative to `bash-sandbox`."""

from dsh.capabilities.local_shell import SETTINGS_NAMESPACE, LocalShell, ShellConfig
from dsh.capabilities.settings_section import install_settings_section
from dsh.capabilities.shell import SHELL
from dsh.capabilities.subprocess import SUBPROCESS
from dsh.kernel import Context

inject = [SUBPROCESS]
provide = [SHELL]
sections = {SETTINGS_NAMESPACE: ShellConfig}
Config = ShellConfig


def apply(ctx: Context, config: ShellConfig) -> None:
    section = install_settings_section(ctx, SETTINGS_NAMESPACE, ShellConfig, config)
    ctx.provide(SHELL, LocalShell(section.get, ctx.use(SUBPROCESS)))
