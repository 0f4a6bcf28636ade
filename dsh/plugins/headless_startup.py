"""Row `headless-startup`: reads the command line of the headless app, as the service `headlessStartup`.

Help and usage errors publish nothing, so what needs the service stays down: no agent, no session, no
request.
"""

import msgspec

from dsh.capabilities.headless import HEADLESS_STARTUP, USAGE, parse_arguments
from dsh.capabilities.launch import APP_EXIT, APP_OUTPUT, CMDLINE_ARGS, AppOutput
from dsh.errors import PIPE_CLOSED, OutputError, UsageError
from dsh.kernel import Context

inject = [CMDLINE_ARGS, APP_EXIT, APP_OUTPUT]
provide = [HEADLESS_STARTUP]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    """Publish the options, or print help or the error and ask for the end."""
    output = ctx.use(APP_OUTPUT)
    try:
        options = parse_arguments(ctx.use(CMDLINE_ARGS).get()).options
    except UsageError as error:
        output.notice(f"error: {error.message}")
        if error.hint:
            output.notice(f"hint: {error.hint}")
        ctx.use(APP_EXIT)(error.exit_code)
        return
    if options is None:
        ctx.use(APP_EXIT)(_told(output))
        return
    ctx.provide(HEADLESS_STARTUP, options)


def _told(output: AppOutput) -> int:
    """Print the help; answers the exit code."""
    try:
        output.answer(USAGE)
    except OutputError as error:
        if error.is_abandoned:
            return PIPE_CLOSED
        output.notice(f"dsh: {error.message}")
        return error.exit_code
    return 0
