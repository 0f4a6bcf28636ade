"""How a line says what is wrong: an error's own words, the code at fault, and what to do.

Errors of plugins are somebody's code too: whatever they hold, one line of bounded length comes out.
"""

import os
import re
import sys
import threading
from pathlib import Path
from traceback import walk_stack, walk_tb

from dsh.errors import DshError, KernelError
from dsh.kernel.foreign import innermost

MAX_SHOWN = 1_500
"""How many characters of an error's own words a line shows."""
MAX_MEMBERS = 5
"""How many errors of a group it shows."""
_LIBRARY = re.escape(str(Path(os.__file__).parent))
_MACHINERY = rf"<|{_LIBRARY}/(?!site-packages)|.*/dsh/(?:kernel|composition)/"
"""Files that say nothing about whose mistake it is: Python's own, and what mounts plugins."""


def with_hint(error: BaseException) -> str:
    """One line for an error: what it says and, in parentheses, what to do."""
    text = described(error)
    return f"{text} ({error.hint})" if isinstance(error, DshError) and error.hint else text


def described(error: BaseException) -> str:
    """One line for an exception: of ours its text, of somebody's code its type, text and place as well."""
    text = words_of(error)
    if isinstance(error, BaseExceptionGroup):
        members = "; ".join(described(one) for one in error.exceptions[:MAX_MEMBERS])
        more = len(error.exceptions) - MAX_MEMBERS
        return f"{text}: {members}" + (f"; {more} more" if more > 0 else "")
    if isinstance(error, DshError) and not isinstance(error, KernelError):
        return text
    where = _place(error)
    if isinstance(error, SyntaxError) and error.filename:
        text, where = error.msg, f" ({error.filename}:{error.lineno})"
    if isinstance(error, KernelError):
        return f"{text}{where}"
    return f"{type(error).__name__}: {text}{where}" if text else f"{type(error).__name__}{where}"


def words_of(error: BaseException) -> str:
    """The error's own words on one line, cut where they are long."""
    try:
        text = str(error)
    except Exception as failure:
        return f"its text cannot be had ({type(failure).__name__})"
    most = 2 * MAX_SHOWN if isinstance(error, DshError) else MAX_SHOWN  # ours may quote somebody's
    text = " ".join(text[: 2 * most].replace("\n  - ", " ").split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _place(error: BaseException) -> str:
    """The innermost line outside of what mounts and imports plugins, of the error or else of its cause."""
    for raised in (error, error.__cause__, error.__context__):
        if raised is not None and (at := innermost(walk_tb(raised.__traceback__), _MACHINERY)):
            return f" ({at})"
    return ""


def running_at() -> str:
    """The line that the main thread is at, outside of the same machinery; empty where there is none.

    For another thread, when the main one does not answer.
    """
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    return "" if frame is None else innermost(reversed(list(walk_stack(frame))), _MACHINERY)
