"""Whose code an error came from. Foreign exceptions do not say so themselves; people need to know."""

import os
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb

from dsh.errors import DshError

_PROGRAM = str(Path(__file__).parent.parent) + os.sep
_PYTHON = str(Path(os.__file__).parent) + os.sep
_NOTE = "dsh_origin"


def note_origin(error: Exception, who: str) -> None:
    """Let an error that is not ours carry whose code raised it, and the line there. The first note counts."""
    if isinstance(error, DshError) or origin_of(error):
        return
    at = ""
    for frame, line in walk_tb(error.__traceback__):
        path = frame.f_code.co_filename
        is_python = path.startswith(_PYTHON) and "site-packages" not in path
        if Path(path).is_absolute() and not path.startswith(_PROGRAM) and not is_python:
            at = f", {path}:{line}"
    with suppress(Exception):  # somebody's class
        setattr(error, _NOTE, f" ({who}{at})")


def origin_of(error: BaseException) -> str:
    """What was noted, with a blank before it and in parentheses; empty where nothing was."""
    try:
        found = getattr(error, _NOTE, "")
    except Exception:
        return ""
    return found if isinstance(found, str) else ""
