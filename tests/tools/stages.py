"""Short listeners, bodies and a watch on the stages of a call."""

from collections.abc import Callable
from typing import Any

from dsh.kernel import Context
from dsh.session.message import user_message
from dsh.tools.event import (
    TOOLS_EXECUTE,
    TOOLS_POST_EXECUTE,
    TOOLS_PRE_EXECUTE,
    TOOLS_RESULT,
)
from dsh.tools.execution import ToolExecution

PRE, EXECUTE, POST, RESULT = "pre", "execute", "post", "result"


def watch(ctx: Context) -> list[str]:
    """Names of the stages that listeners hear of, in order."""
    seen: list[str] = []

    def around(name: str) -> Callable[..., Any]:
        async def listener(_: object, following: Callable[[], Any]) -> Any:
            seen.append(name)
            return await following()

        return listener

    ctx.on(TOOLS_PRE_EXECUTE, around(PRE))
    ctx.on(TOOLS_EXECUTE, around(EXECUTE))
    ctx.on(TOOLS_POST_EXECUTE, around(POST))
    ctx.on(TOOLS_RESULT, lambda _: seen.append(RESULT))
    return seen


def answering(decision: Any) -> Callable[..., Any]:
    async def listener(_: object, __: object) -> Any:
        return decision

    return listener


def raising(error: Exception) -> Callable[..., Any]:
    async def listener(_: object, __: object) -> Any:
        raise error

    return listener


def body(act: Callable[[ToolExecution], Any]) -> Callable[..., Any]:
    async def execute(_: Any, execution: ToolExecution) -> Any:
        answer = act(execution)
        return "done" if answer is None else answer

    return execute


def fail(error: BaseException) -> Callable[..., Any]:
    async def execute(_: Any, __: Any) -> Any:
        raise error

    return execute


def note(words: str) -> Any:
    return user_message(words, {"kind": "plugin", "plugin": "test"})
