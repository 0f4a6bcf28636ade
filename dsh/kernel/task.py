"""What a task that nobody waits for any more needs."""

import asyncio
from typing import Any


def retrieve(future: "asyncio.Future[Any]") -> None:
    """Take note of how it ended, so that asyncio does not complain of an exception that nobody has read.

    A callback for `add_done_callback`: whoever needs the outcome awaits it, or has told of it already.
    """
    if not future.cancelled():
        future.exception()
