"""Runs an async test in a fresh event loop and fails it when it leaves tasks behind."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


def aio(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorator: `@aio async def test_…`."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def body() -> None:
            await test(*args, **kwargs)
            await asyncio.sleep(0)
            left = [t for t in asyncio.all_tasks() if t is not asyncio.current_task() and not t.done()]
            assert not left, f"tasks left behind: {left}"

        asyncio.run(body())

    return run
