"""Operations of one id run one after the other, whatever becomes of those before them."""

import asyncio
import threading
from functools import partial

import pytest

from dsh.persistence.chain import Chains, Worker
from tests.aio import aio


@aio
async def test_first_come_first_served_per_key_and_keys_are_independent() -> None:
    chains, order = Chains(), list[str]()
    gate = asyncio.Event()

    async def note(name: str, *, wait: bool = False) -> str:
        if wait:
            await gate.wait()
        order.append(name)
        return name

    first = chains.start("a", lambda: note("a1", wait=True))
    later = [chains.start("a", partial(note, f"a{n}")) for n in (2, 3)]
    assert await chains.run("b", lambda: note("b1")) == "b1"
    gate.set()

    assert await asyncio.gather(first, *later) == ["a1", "a2", "a3"]
    assert order == ["b1", "a1", "a2", "a3"]
    await chains.join()
    assert chains._tails == {}


@aio
async def test_a_failure_or_a_cancelled_caller_does_not_stop_the_line() -> None:
    chains, done = Chains(), list[int]()
    gate = asyncio.Event()

    async def fail() -> None:
        raise ValueError("no")

    async def slow() -> None:
        await gate.wait()
        done.append(1)

    async def last() -> None:
        done.append(2)

    with pytest.raises(ValueError, match="no"):
        await chains.run("a", fail)
    waiting = asyncio.create_task(chains.run("a", slow))
    await asyncio.sleep(0)
    after = chains.start("a", last)
    waiting.cancel()
    await asyncio.sleep(0)
    gate.set()
    await after

    assert waiting.cancelled()
    assert done == [1, 2]


@aio
async def test_files_are_worked_on_in_one_thread_that_is_not_the_loops() -> None:
    worker = Worker()
    threads = {await worker.call(threading.get_ident) for _ in range(5)}
    worker.stop()

    assert len(threads) == 1
    assert threads != {threading.get_ident()}
