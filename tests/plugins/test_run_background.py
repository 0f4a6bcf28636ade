"""The end of a run: how long background jobs may go on, and which of them are said to be dropped."""

import asyncio
from collections.abc import Callable

from dsh.plugins.headless_runner.background import Background
from tests.agent.kit import data_of, text
from tests.aio import aio_in_virtual_time
from tests.plugins.job_kit import Work, jobs_of, soon, with_jobs


def now_s() -> float:
    return asyncio.get_running_loop().time()


def in_1_s(act: Callable[[], object]) -> None:
    asyncio.get_running_loop().call_later(1, act)


@aio_in_virtual_time
async def test_it_waits_only_while_something_runs_that_may_give_news() -> None:
    async with with_jobs(text("woken")) as running:
        agent, interrupted = await running.agent(), asyncio.Event()
        background, held = Background(running.ctx, agent, interrupted), jobs_of(running.ctx)
        began = now_s()
        assert not await background.has_news(60)
        assert now_s() - began < 1

        of_nobody, lasting = Work(), Work()
        await held.start(of_nobody.spec())
        in_1_s(of_nobody.end)
        assert not await background.has_news(60)
        assert now_s() - began < 3

        for work in (Work(), lasting):
            await held.start(work.spec(agent))
        in_1_s(lambda: held.kill("bash-2", agent.id))
        asyncio.get_running_loop().call_later(2, lasting.end)
        assert await background.has_news(60)
        assert now_s() - began < 10
        await agent.when_idle()

        await held.start(Work().spec(agent))
        in_1_s(interrupted.set)
        assert not await background.has_news(60)
        assert now_s() - began < 20


@aio_in_virtual_time
async def test_what_somebody_has_ended_already_and_what_cannot_be_ended_are_told_apart() -> None:
    async with with_jobs() as running:
        agent = await running.agent()
        held, works = jobs_of(running.ctx), [Work(ends_on_cancel=False) for _ in range(2)]
        for work in works:
            await held.start(work.spec(agent))
        held.kill("bash-1", agent.id)
        works[1].cancel_failure = OSError("no")
        lines = Background(running.ctx, agent, asyncio.Event()).drop()
        assert lines == ("dsh: 1 background job still ran and was ended: bash-2 (make)",)
        assert data_of(agent.session, "run/dropped") == [{"kind": "bash", "id": "bash-2", "label": "make"}]
        works[1].cancel_failure = None
        for work in works:
            work.end()
        await soon()
