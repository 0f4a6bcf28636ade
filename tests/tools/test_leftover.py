"""Tasks that nobody waits for any more: each ends by itself, or with the context that it was left to."""

import asyncio

import pytest

from dsh.kernel import Context
from dsh.tools.leftover import END_S, leave_with
from tests.aio import aio_in_virtual_time as aio


async def plugin(ctx: Context) -> None:
    """Something to leave a task to."""


@pytest.mark.parametrize("fails", [False, True])
@aio
async def test_a_task_that_ends_by_itself_leaves_nothing_with_its_context(fails: bool) -> None:
    ctx = Context()
    fiber = await ctx.plugin(plugin)

    async def work() -> None:
        await asyncio.sleep(1)
        if fails:
            raise ValueError("nobody reads this")

    leave_with(fiber.ctx, asyncio.create_task(work()), "work")
    held = len(fiber.effects)
    await asyncio.sleep(2)

    assert len(fiber.effects) == held - 1
    await ctx.dispose()


@pytest.mark.parametrize(("tidying_s", "waited_s"), [(END_S / 2, END_S / 2), (3600, END_S)])
@aio
async def test_the_end_of_the_context_waits_for_its_tidying_up_but_not_for_ever(
    tidying_s: float, waited_s: float
) -> None:
    ctx = Context()
    fiber = await ctx.plugin(plugin)

    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(tidying_s)

    task = asyncio.create_task(work())
    leave_with(fiber.ctx, task, "work")
    await asyncio.sleep(0)
    start = asyncio.get_running_loop().time()
    await fiber.dispose()

    assert asyncio.get_running_loop().time() - start == pytest.approx(waited_s)
    assert task.done() is (tidying_s < END_S)
    task.cancel()
    await ctx.dispose()


@aio
async def test_a_context_that_is_gone_ends_it_at_once() -> None:
    ctx = Context()
    fiber = await ctx.plugin(plugin)
    await fiber.dispose()
    task = asyncio.create_task(asyncio.sleep(3600))

    leave_with(fiber.ctx, task, "work")
    await asyncio.wait((task,), timeout=0.1)

    assert task.cancelled()
    await ctx.dispose()
