"""Log records of dsh's own code on standard error: one line each, tracebacks only when asked for."""

import contextlib
import logging
import sys
import threading
import warnings
from collections import Counter
from typing import Any, TextIO

from dsh.cli.report import describe, is_debug, one_line
from dsh.cli.stream import notice
from dsh.errors import DshError

MOST_REPEATS = 3
"""How often the same line is printed: a listener that fails at every event fills no screen."""
MOST_KEPT = 1_000
"""How many different lines are remembered."""


class Console(logging.Handler):
    """Prints `dsh: <message>`. Warnings and errors are visible by default. State: how often each was said."""

    def __init__(self, level: int = logging.NOTSET) -> None:
        super().__init__(level)
        self._said: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record, unless it only passes on an error that was shown before."""
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not _is_news(error) and not is_debug():
            return
        try:
            text = record.getMessage()
        except Exception as failure:  # what is logged may be somebody's error, whose text is somebody's code
            text = f"{record.msg} (its arguments cannot be shown: {type(failure).__name__})"
        text = one_line(text)
        if len(self._said) >= MOST_KEPT:
            self._said.clear()
        self._said[text] += 1
        if self._said[text] > MOST_REPEATS and not is_debug():
            return
        again = " (and again; not told any more)" if self._said[text] == MOST_REPEATS else ""
        notice(f"dsh: {text}{again}")
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
    """Send the records of every `dsh.*` logger to the console and nowhere else. Done once a process.

    What Python prints by itself comes the same way: warnings, failures of threads and of finalizers, and the
    warnings of libraries for which nobody has made a logger.
    """
    logger = logging.getLogger("dsh")
    logger.handlers[:] = [Console()]
    logging.lastResort = Console(logging.WARNING)
    warnings.showwarning = _warned
    threading.excepthook = _thread_failed
    sys.unraisablehook = _unraisable
    logger.propagate = False
    logger.setLevel(logging.DEBUG if is_debug() else logging.WARNING)


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    _tell(f"{category.__name__}: {message} ({filename}:{lineno})", None)


def _thread_failed(failed: threading.ExceptHookArgs) -> None:
    if failed.exc_value is not None and not isinstance(failed.exc_value, SystemExit):
        name = failed.thread.name if failed.thread is not None else "unknown"
        _tell(f"thread {name} failed: {describe(failed.exc_value)}", failed.exc_value)


def _unraisable(failed: Any) -> None:
    if failed.exc_value is not None:
        where = getattr(failed.object, "__qualname__", type(failed.object).__name__)
        _tell(f"an error that nobody can handle, in {where}: {describe(failed.exc_value)}", failed.exc_value)


def _tell(text: str, error: BaseException | None) -> None:
    """Never raises: it is called where nothing can be done about it."""
    with contextlib.suppress(Exception):
        logging.getLogger("dsh").warning("%s", text, exc_info=error)
