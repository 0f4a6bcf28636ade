"""Code of plugins may raise anything; here all of it becomes an ordinary failure.

A plugin that calls `sys.exit()`, leaks a cancelled future or raises a `BaseException` of its own has
failed like any other: it must neither end the process nor silently end the task that called it.
"""

import asyncio
import re
from collections.abc import Awaitable, Iterable
from types import FrameType
from typing import TypeVar

from dsh.errors import DshError, KernelError
from dsh.kernel.task import KeptTask
from dsh.unicode import valid

T = TypeVar("T")

MAX_MEMBERS = 5
"""How many errors of a group are told."""
LONGEST = 16_384
"""How many characters of an error's text are kept; nobody reads more of one."""


def contained(error: BaseException, who: str) -> Exception:
    """What `who` raised, as a failure for ordinary handlers. Call it where a `BaseException` is caught.

    Raises:
        BaseException: the same error, where the running task itself is going down: it is being cancelled
            from outside, not by itself, or its loop is gone and its coroutine is being closed.
    """
    if isinstance(error, Exception):
        return error
    if isinstance(error, asyncio.CancelledError | GeneratorExit) and _is_going_down(error):
        raise error
    text = text_of(error)
    said = f": {text}" if text else ""
    failure = KernelError(f"{who} raised {type(error).__name__}{said}", code="FOREIGN_EXIT")
    failure.__context__ = error
    return failure


def told(error: BaseException) -> str:
    """What a line of the log says of an error: ours its own words, somebody's its type before them."""
    text = text_of(error)
    if isinstance(error, DshError):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def text_of(error: BaseException) -> str:
    """The text of an error, of a group its members' too, whatever its `__str__` does."""
    try:
        if isinstance(error, BaseExceptionGroup):
            members = (text_of(one) or type(one).__name__ for one in error.exceptions[:MAX_MEMBERS])
            return f"{error.message} [{'; '.join(members)}]"
        return str(error)
    except BaseException as failure:
        return f"its text cannot be had ({type(failure).__name__})"


def bounded(text: str) -> str:
    """The text of an error as log and model take it: valid Unicode, and cut where it is very long."""
    text = valid(text)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text)} characters)"


def innermost(frames: Iterable[tuple[FrameType, int]], machinery: str) -> str:
    """The last of these lines, as `path:number`, whose file does not match a pattern; empty for none."""
    at = ""
    for frame, line in frames:
        if not re.match(machinery, path := frame.f_code.co_filename):
            at = f"{path}:{line}"
    return at


async def awaited(work: Awaitable[T], who: str) -> T:
    """What comes of `work`, which `who` does; what it raises is `contained`."""
    try:
        return await work
    except BaseException as error:
        raise contained(error, who)  # noqa: B904 -- the same one, or made of it


def _is_going_down(error: BaseException) -> bool:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no loop runs
        return True
    if not isinstance(error, asyncio.CancelledError) or task is None or not task.cancelling():
        return False
    return not isinstance(task, KeptTask) or task.is_ended_from_outside
