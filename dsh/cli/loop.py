"""Runs the event loop until the program's own work is done, whatever a plugin does to the loop."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

LEFT_S = 1.0
"""How long tasks that nobody waits for may take to end once the work is done."""


def run_to_end(work: Coroutine[Any, Any, T], died: Callable[[BaseException], None]) -> T:
    """The result of `work`, like that of `asyncio.run`, in a process that ends right afterwards.

    A callback or a stray task that exits, or that stops the loop, ends neither: the loop is started again.
    Tasks and threads that do not end are not waited for.

    Args:
        died: told what such a callback or task raised; it may let the work come to its end.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    task = loop.create_task(work)
    while not (task.done() or loop.is_closed()):
        try:
            loop.run_until_complete(asyncio.wait((task,)))
        except (SystemExit, KeyboardInterrupt) as error:
            died(error)
        except RuntimeError as stopped:
            logging.getLogger(__name__).debug("the loop came to a stop: %s", stopped)
    try:
        loop.run_until_complete(_leave(loop))
    except BaseException as error:
        logging.getLogger(__name__).debug("what was left has died: %r", error)
    return task.result()


async def _leave(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=LEFT_S)
    await loop.shutdown_asyncgens()
