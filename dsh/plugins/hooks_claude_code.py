"""Row `hooks-claude-code`: runs the hooks of a Claude Code hook file or settings file.

A hook is a command that reads JSON and answers by its exit code or by JSON; `docs/hooks.md` has the events.
"""

import re
from collections.abc import Mapping

from dsh.agent.hooks.config import HookConfig
from dsh.agent.hooks.dialect import CLAUDE_CODE
from dsh.agent.hooks.row import mount
from dsh.capabilities.shell import SHELL
from dsh.kernel import Context

inject = [SHELL]
provide = ()

_PLAIN = re.compile(r"[\w./@%+=:, -]*")
"""Paths that mean the same to a shell as variable and as text, quoted or not."""


class Config(HookConfig, frozen=True, kw_only=True):
    """Options of the row `hooks-claude-code`."""

    plugin_root: str | None = None
    """What `${CLAUDE_PLUGIN_ROOT}` stands for."""
    project_dir: str | None = None
    """What `${CLAUDE_PROJECT_DIR}` stands for; unset: the session's directory."""


def apply(ctx: Context, config: Config) -> None:
    def env_of(cwd: str) -> Mapping[str, str]:
        variables = {"CLAUDE_PROJECT_DIR": config.project_dir or cwd}
        if config.plugin_root is not None:
            variables["CLAUDE_PLUGIN_ROOT"] = config.plugin_root
        return variables

    def command_of(command: str, cwd: str) -> str:
        """The names replaced; where the text would be read otherwise, the variable does the same."""
        for name, path in env_of(cwd).items():
            if _PLAIN.fullmatch(path):
                command = command.replace(f"${{{name}}}", path)
        return command

    mount(ctx, CLAUDE_CODE, config, command_of=command_of, env_of=env_of)
