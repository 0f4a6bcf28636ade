"""Log records of dsh's own code on standard error: one line each, tracebacks only when asked for."""

import logging

from dsh.cli.report import is_debug, one_line
from dsh.cli.stream import notice
from dsh.errors import DshError


class Console(logging.Handler):
    """Prints `dsh: <message>`. Warnings and errors are visible by default."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record, unless it only passes on an error that was shown before."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not _is_news(error) and not is_debug():
            return
        try:
            text = record.getMessage()
        except Exception as failure:  # what is logged may be somebody's error, whose text is somebody's code
            text = f"{record.msg} (its arguments cannot be shown: {type(failure).__name__})"
        notice(f"dsh: {one_line(text)}")
        if record.exc_info and is_debug():
            notice(logging.Formatter().formatException(record.exc_info))


def _is_news(error: BaseException) -> bool:
    """Whether there is something to show in an error, or a group of them; after that there is not."""
    errors = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
    news = [one for one in errors if not (isinstance(one, DshError) and one.is_told)]
    for one in news:
        if isinstance(one, DshError):
            one.is_told = True
    return bool(news)


def install() -> None:
    """Send the records of every `dsh.*` logger to the console and nowhere else. Done once a process."""
    logger = logging.getLogger("dsh")
    logger.handlers[:] = [Console()]
    logger.propagate = False
    logger.setLevel(logging.DEBUG if is_debug() else logging.WARNING)
