"""The pipes of a child that its starter uses itself, and standard input given beforehand.

All of it runs in callbacks of the event loop on descriptors that do not block.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import IO

PIPE_BYTES = 1 << 16


class PipeWriter:
    """Standard input of a child. Implements `dsh.capabilities.subprocess.ByteWriter`."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._fd = pipe.fileno()
        os.set_blocking(self._fd, False)
        self._turn = asyncio.Lock()
        self._ready = asyncio.Event()

    async def write(self, data: bytes) -> None:
        async with self._turn:  # two writers do not mix their bytes
            left = memoryview(data)
            while left and not self._pipe.closed:
                try:
                    left = left[os.write(self._fd, left[:PIPE_BYTES]) :]
                except BlockingIOError:
                    await self._wait()
                except OSError:
                    self.close()  # the child does not read: its exit is what counts

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._ready.clear()
        loop.add_writer(self._fd, self._ready.set)
        try:
            await self._ready.wait()
        finally:
            if not self._pipe.closed:
                loop.remove_writer(self._fd)

    def close(self) -> None:
        if self._pipe.closed:
            return
        with contextlib.suppress(RuntimeError):  # the loop is over
            asyncio.get_running_loop().remove_writer(self._fd)
        self._pipe.close()
        self._ready.set()


class PipeReader:
    """Standard output of a child. Implements `dsh.capabilities.subprocess.ByteReader`.

    What the child wrote can be read after its exit. A pipe that others hold open then ends all the same,
    as soon as it is empty, once `give_up` was called.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._fd = pipe.fileno()
        os.set_blocking(self._fd, False)
        self._turn = asyncio.Lock()
        self._ready = asyncio.Event()
        self._is_given_up = False

    @property
    def is_closed(self) -> bool:
        return self._pipe.closed

    async def read(self) -> bytes:
        async with self._turn:
            while not self._pipe.closed:
                try:
                    data = os.read(self._fd, PIPE_BYTES)
                except BlockingIOError:
                    if not self._is_given_up:
                        await self._wait()
                        continue
                    data = b""
                except OSError:
                    data = b""
                if not data:
                    self.close()
                return data
            return b""

    async def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._ready.clear()
        loop.add_reader(self._fd, self._ready.set)
        try:
            await self._ready.wait()
        finally:
            if not self._pipe.closed:
                loop.remove_reader(self._fd)

    def give_up(self) -> None:
        """Wait for no more than what is in the pipe."""
        self._is_given_up = True
        self._ready.set()

    def close(self) -> None:
        if self._pipe.closed:
            return
        with contextlib.suppress(RuntimeError):  # the loop is over
            asyncio.get_running_loop().remove_reader(self._fd)
        self._pipe.close()
        self._ready.set()


def feed(pipe: IO[bytes], data: bytes, close: Callable[[], None]) -> None:
    """Write `data` as fast as the child reads, then call `close`."""
    fd = pipe.fileno()
    os.set_blocking(fd, False)
    left = memoryview(data)

    def writable() -> None:
        nonlocal left
        try:
            left = left[os.write(fd, left[:PIPE_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:
            left = left[:0]  # a child that does not read its input is judged by its exit alone
        if not left:
            close()

    asyncio.get_running_loop().add_writer(fd, writable)
