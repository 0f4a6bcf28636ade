"""Runs the event loop until the program's own work is done, whatever a plugin does to the loop."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_to_end(work: Coroutine[Any, Any, T], died: Callable[[BaseException], None]) -> T:
    """The result of `work`, like that of `asyncio.run`.

    A callback or a stray task that exits, or that stops the loop, ends neither: the loop is started again.

    Args:
        died: told what such a callback or task raised; it may let the work come to its end.
    """
    runner = asyncio.Runner()
    loop = runner.get_loop()
    task = loop.create_task(work)
    try:
        while not (task.done() or loop.is_closed()):
            try:
                loop.run_until_complete(task)
            except RuntimeError as stopped:
                logging.getLogger(__name__).debug("the loop came to a stop: %s", stopped)
            except (SystemExit, KeyboardInterrupt) as error:
                if not task.done():
                    died(error)
            except BaseException as error:
                logging.getLogger(__name__).debug("the work of the loop ended: %r", error)
    finally:
        _close(runner)
    return task.result()


def _close(runner: asyncio.Runner) -> None:
    try:
        runner.close()
    except BaseException as error:
        logging.getLogger(__name__).debug("a task left over has died: %r", error)
