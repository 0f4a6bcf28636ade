"""Runs an async test in a fresh event loop and fails it when it leaves tasks behind."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


def aio(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Decorator: `@aio async def test_…`."""
    return _running(test, asyncio.new_event_loop)


def aio_in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The same for tests of limits in time: whoever sleeps is woken at once, in the order of the clock.

    Not for tests with threads, processes or sockets, whose time passes outside.
    """
    return _running(test, _VirtualLoop)


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


class _Jumping(selectors.SelectSelector):
    """Where a selector would wait for a time, this one lets the time pass at once."""

    passed_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        events = super().select(0)
        if not events:
            self.passed_s += max(timeout, 0)
        return events


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.passed_s
