"""Reads the command line of the headless app and publishes it as the service `headlessStartup`.

Help and usage errors publish nothing, so what needs the service stays down: no agent, no session, no
request.
"""

import msgspec

from dsh.capabilities.headless import HEADLESS_STARTUP, USAGE, parse_arguments
from dsh.capabilities.launch import APP_EXIT, APP_OUTPUT, CMDLINE_ARGS
from dsh.errors import UsageError
from dsh.kernel import Context

inject = [CMDLINE_ARGS, APP_EXIT, APP_OUTPUT]


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
        output.answer(USAGE)
        ctx.use(APP_EXIT)(0)
        return
    ctx.provide(HEADLESS_STARTUP, options)
