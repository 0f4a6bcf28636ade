"""The entry point: decides from the command line what is loaded at all.

Standard library modules that cost time, and everything of dsh but the command line's first split and the
standard streams, are imported only by the branch that needs them.
"""

import gc
import os
import sys
from collections.abc import Sequence

from dsh.cli.argv import Invocation, parse
from dsh.cli.directory import settled
from dsh.cli.stream import open_missing, unwritable, write_all
from dsh.errors import PIPE_CLOSED, OutputError
from dsh.unicode import valid


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; answers the exit code. Never raises.

    Args:
        argv: the words after the program's name; those of the process by default.
    """
    if argv is None:
        _in_utf8_mode()
        open_missing()  # before anything of ours could take the number of a standard stream
        argv = sys.argv[1:]
    try:
        return _run(parse(argv))
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if isinstance(error, OutputError) and error.is_abandoned:
            return PIPE_CLOSED
        from dsh.cli.report import report

        return report(error)


def _run(invocation: Invocation) -> int:
    match invocation.action:
        case "boot":
            from dsh.cli.process import Watchdog

            watchdog = Watchdog().install()
            gc.disable()  # looking for garbage among modules being loaded takes 40 ms; boot enables it again
            from dsh.cli.boot import boot

            return boot(settled(invocation), watchdog)
        case "version":
            from dsh import __version__

            return _print(f"dsh {__version__}\n")
        case "dump" | "dump-default":
            from dsh.cli.dump import dumped

            return _print(dumped(settled(invocation)))
        case "help":
            from dsh.cli.app import run

            return run(["--help"])
        case "command":
            from dsh.cli.app import run

            return run(invocation.rest)


def _print(text: str) -> int:
    try:
        write_all(1, valid(text).encode())
    except OSError as error:
        raise unwritable(error) from error
    return 0


def _in_utf8_mode() -> None:
    """Start again in Python's UTF-8 mode where the locale would have us read and write anything else."""
    if sys.flags.utf8_mode or sys.getfilesystemencoding() == "utf-8" or not sys.executable:
        return
    os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
