"""Order and place of work: one line of waiting operations per session id, one thread for files."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from dsh.kernel.task import retrieve

T = TypeVar("T")
P = ParamSpec("P")


class Chains:
    """Per key: first come, first served. A failure reaches who asked and does not stop the line."""

    def __init__(self) -> None:
        self._tails: dict[str, asyncio.Task[Any]] = {}

    def start(self, key: str, operation: Callable[[], Coroutine[Any, Any, T]]) -> "asyncio.Task[T]":
        """Run the operation after all earlier ones of this key."""
        before = self._tails.get(key)

        async def turn() -> T:
            if before is not None:
                await asyncio.wait((before,))
            return await operation()

        task = asyncio.create_task(turn(), name=f"persistence of {key}")
        self._tails[key] = task
        task.add_done_callback(lambda done: self._settled(key, done))
        return task

    async def run(self, key: str, operation: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same, waiting for it. Cancelling the caller ends the wait; the operation goes on."""
        return await asyncio.shield(self.start(key, operation))

    async def join(self) -> None:
        """Wait until no operation is left."""
        while self._tails:
            await asyncio.wait(list(self._tails.values()))
            await asyncio.sleep(0)

    def _settled(self, key: str, task: "asyncio.Task[Any]") -> None:
        retrieve(task)
        if self._tails.get(key) is task:
            del self._tails[key]


class Worker:
    """The one thread in which files are read and written; never the event loop's."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dsh-persistence")

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function there and wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def stop(self) -> None:
        """End the thread once it has nothing left to do; does not wait."""
        self._pool.shutdown(wait=False)
