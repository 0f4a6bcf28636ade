"""What both rows of hooks do when they are mounted."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from dsh.agent.hooks.bridge import Bridge
from dsh.agent.hooks.config import HookConfig
from dsh.agent.hooks.dialect import Dialect
from dsh.agent.hooks.file import HookFileError, load
from dsh.agent.hooks.runner import HookRunner
from dsh.agent.hooks.session import SessionHooks
from dsh.capabilities.recorded import is_given
from dsh.errors import CompositionError
from dsh.kernel import Context


def mount(
    ctx: Context,
    dialect: Dialect,
    config: HookConfig,
    *,
    model: str = "",
    command_of: Callable[[str, str], str] = lambda command, cwd: command,
    env_of: Callable[[str], Mapping[str, str]] = lambda cwd: {},
) -> None:
    """Read the hook file and listen. In a replay that is given its record, do nothing.

    Args:
        command_of: the command line as the shell gets it, of the file's one and the working directory.
        env_of: more variables of a hook, for a working directory.

    Raises:
        CompositionError: the file cannot be used, and some hook of it must not fail silently.
    """
    if is_given(ctx, kind="plugin", plugin=dialect.owner):
        return
    path = os.path.expanduser(config.config_path)  # noqa: PTH111 -- an unknown user is a missing file
    try:
        file = load(Path(path).absolute(), dialect)
    except HookFileError as error:
        if config.on_failure == "deny" or error.wants_deny:
            raise CompositionError(f"{dialect.owner}: {error.message}", hint=error.hint) from None
        hint = f" ({error.hint})" if error.hint else ""
        ctx.logger.warning("%s: %s; no hook of it runs%s", dialect.owner, error.message, hint)
        return
    for note in file.notes:
        ctx.logger.warning("%s: %s: %s", dialect.owner, config.config_path, note)
    if file.groups:
        runner = HookRunner(ctx, dialect, file, config, command_of=command_of, env_of=env_of)
        Bridge(SessionHooks(ctx, dialect, runner, config, model)).install()
