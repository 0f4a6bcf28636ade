"""Runs an async test in a fresh event loop and fails it when it leaves tasks behind."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from dsh.testing.clock import VirtualTimeLoop

P = ParamSpec("P")


def aio(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorator: `@aio async def test_…`."""
    return _running(test, asyncio.new_event_loop)


def aio_in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The same for tests of limits in time: whoever sleeps is woken at once, in the order of the clock.

    Not for tests with threads, processes or sockets, whose time passes outside.
    """
    return _running(test, VirtualTimeLoop)


def _running(
    test: Callable[P, Coroutine[Any, Any, None]], new_loop: Callable[[], asyncio.AbstractEventLoop]
) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def body() -> None:
            await test(*args, **kwargs)
            await asyncio.sleep(0)
            left = [t for t in asyncio.all_tasks() if t is not asyncio.current_task() and not t.done()]
            assert not left, f"tasks left behind: {left}"

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(body())

    return run
