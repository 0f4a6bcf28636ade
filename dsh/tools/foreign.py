"""Code of tools and policies may raise anything; here all of it becomes a failure that can be told."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from dsh.kernel.foreign import contained, text_of
from dsh.tools.error import ToolError

P = ParamSpec("P")
T = TypeVar("T")


def called(who: str, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What `function` answers.

    Raises:
        Exception: what it raised; a `ToolError` naming `who` where that would have ended the task.
    """
    try:
        return function(*args, **kwargs)
    except BaseException as error:
        raise exit_of(error, who)  # noqa: B904 -- the same one, or made of it


def exit_of(error: BaseException, who: str) -> Exception:
    """The failure behind whatever ended the code of `who`.

    Raises:
        BaseException: the same error, where the running task itself is going down.
    """
    if contained(error, who) is error:
        assert isinstance(error, Exception)
        return error
    failure = ToolError(f"{who} failed: {_told(error)}")
    failure.__suppress_context__ = True
    return failure


def _told(error: BaseException) -> str:
    match error:
        case asyncio.CancelledError():
            return "a task that it waited for was cancelled"
        case SystemExit():
            return f"it tried to end the process (exit {error.code})"
        case _:
            text = text_of(error)
            return f"it raised {type(error).__name__}" + (f": {text}" if text else "")
