"""Code that ends only when its task is cancelled, for those who wait for it in vain."""

import asyncio
from typing import Any


class Deaf:
    """Asked anything, it never answers. State: whether it has begun, and whether it has ended."""

    def __init__(self) -> None:
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def wait(self, *_: object) -> Any:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.set()
