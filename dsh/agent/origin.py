"""Whose code an error came from. Foreign exceptions do not say so themselves; people need to know."""

import os
import re
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb

from dsh.errors import DshError
from dsh.kernel.foreign import innermost

_PROGRAM, _PYTHON = (re.escape(str(Path(path).parent)) for path in (Path(__file__).parent, os.__file__))
_OURS = rf"[^/]|{_PROGRAM}/|{_PYTHON}/(?!site-packages/)"
"""Files that say nothing about whose mistake it is: the program's, Python's, and what is no file."""
_NOTE = "dsh_origin"


def note_origin(error: Exception, who: str) -> None:
    """Let an error that is not ours carry whose code raised it, and the line there. The first note counts."""
    if isinstance(error, DshError) or origin_of(error):
        return
    at = innermost(walk_tb(error.__traceback__), _OURS)
    with suppress(Exception):  # somebody's class
        setattr(error, _NOTE, f" ({who}, {at})" if at else f" ({who})")


def origin_of(error: BaseException) -> str:
    """What was noted, with a blank before it and in parentheses; empty where nothing was."""
    try:
        found = getattr(error, _NOTE, "")
    except Exception:
        return ""
    return found if isinstance(found, str) else ""
