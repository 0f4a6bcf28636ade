"""Tests of the end of the process: who wins, how long it may take."""

import asyncio

from dsh.cli.shutdown import Shutdown
from tests.aio import aio


class Tree:
    """Counts disposals; one may hang or fail."""

    def __init__(self, *, hangs: bool = False, fails: bool = False) -> None:
        self.disposed, self._hangs, self._fails = 0, hangs, fails

    async def dispose(self) -> None:
        self.disposed += 1
        if self._hangs:
            await asyncio.sleep(30)
        if self._fails:
            raise ValueError("no")


def shutdown_of(tree: Tree) -> tuple[Shutdown, list[int]]:
    forced: list[int] = []
    return Shutdown(tree.dispose, force=forced.append, bound_s=0.05), forced


@aio
async def test_first_code_wins_and_disposal_happens_once() -> None:
    tree = Tree()
    shutdown, forced = shutdown_of(tree)

    shutdown.request(0)
    shutdown.request(1)

    assert await shutdown.run() == 0
    assert (tree.disposed, forced) == (1, [])


@aio
async def test_disposal_that_hangs_forces_the_same_code() -> None:
    shutdown, forced = shutdown_of(tree := Tree(hangs=True))

    shutdown.request(3)
    await shutdown.run()

    assert (tree.disposed, forced) == (1, [3])
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@aio
async def test_disposal_that_fails_forces_the_same_code() -> None:
    shutdown, forced = shutdown_of(Tree(fails=True))

    shutdown.request(3)
    await shutdown.run()

    assert forced == [3]


@aio
async def test_signal_with_nothing_pending_starts_the_orderly_end() -> None:
    tree = Tree()
    shutdown, forced = shutdown_of(tree)

    shutdown.interrupt(130)

    assert await shutdown.run() == 130
    assert (tree.disposed, forced) == (1, [])


@aio
async def test_signal_during_a_normal_end_forces_with_its_own_code() -> None:
    shutdown, forced = shutdown_of(Tree())

    shutdown.request(0)
    shutdown.interrupt(130)

    assert forced == [130]


@aio
async def test_signal_after_disposal_while_the_process_drains_forces() -> None:
    shutdown, forced = shutdown_of(Tree())
    shutdown.request(0)
    await shutdown.run()

    shutdown.interrupt(143)

    assert forced == [143]
