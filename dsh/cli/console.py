"""Log records of dsh's own code on standard error: one line each, tracebacks only when asked for."""

import logging

from dsh.cli.report import is_debug, one_line
from dsh.cli.stream import notice


class Console(logging.Handler):
    """Prints `dsh: <message>`. Warnings and errors are visible by default."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        notice(f"dsh: {one_line(record.getMessage())}")
        if record.exc_info and is_debug():
            notice(logging.Formatter().formatException(record.exc_info))


def install() -> None:
    """Send the records of every `dsh.*` logger to the console and nowhere else. Done once a process."""
    logger = logging.getLogger("dsh")
    logger.handlers[:] = [Console()]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if is_debug() else logging.WARNING)
