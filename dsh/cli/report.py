"""How errors reach the person at the terminal: one line, a hint, and no traceback unless asked for."""

import os

from dsh.cli.stream import notice
from dsh.errors import DshError, UsageError

DEBUG = "DSH_DEBUG"
"""With this variable set, errors come with their traceback."""

MAX_SHOWN = 4_000
"""How many characters of an unexpected error's own words are shown."""


def is_debug() -> bool:
    return bool(os.environ.get(DEBUG))


def report(error: BaseException) -> int:
    """Say on standard error what went wrong; answers the exit code.

    A `DshError` says it itself, see `tell`; a wrong command line starts with `error:`. Anything else is a
    defect of ours.
    """
    if is_debug():
        _print_traceback(error)
        for row in getattr(error, "reports", ()):  # a boot error has one for each row
            if row.error is not None:
                _print_traceback(row.error)
    if isinstance(error, UsageError):
        notice(f"error: {error.message}")
        tell_hint(error.hint)
        return error.exit_code
    if isinstance(error, DshError):
        tell(error)
        return error.exit_code
    notice(f"dsh: internal error: {describe(error)}")
    if not is_debug():
        notice(f"hint: set {DEBUG}=1 to see where; please report it")
    return 1


def tell(error: DshError, *, hint: str = "") -> None:
    """Say on standard error `dsh: CODE: message`, the code where there is one, and the hint in a second line.

    Args:
        hint: instead of the error's own.
    """
    code = f"{error.code}: " if error.code else ""
    notice(f"dsh: {code}{error.message}")
    tell_hint(hint or error.hint)


def tell_hint(hint: str) -> None:
    """Say what to do next, if there is anything."""
    if hint:
        notice(f"hint: {hint}")


def _print_traceback(error: BaseException) -> None:
    import traceback

    notice("".join(traceback.format_exception(error)).rstrip())


def describe(error: BaseException) -> str:
    """The error's type and text in one line; `DshError` and system errors speak for themselves."""
    if isinstance(error, DshError):
        return one_line(error.message)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    try:
        text = one_line(str(error)[:MAX_SHOWN])
    except Exception as failure:  # the text of an error is somebody's code too
        text = f"its text cannot be had ({type(failure).__name__})"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(text: str) -> str:
    """The text with every run of white space as one blank."""
    return " ".join(text.split())
