"""Row `timer`: what fires when, and that nothing fires for a plugin that is gone."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from dsh.capabilities.timer import TIMER, Timer
from dsh.errors import KernelError
from dsh.kernel import Context, Fiber, ServiceUnavailable
from dsh.plugins import timer
from tests.aio import aio_in_virtual_time


class User:
    """A plugin that uses timers: its context, its fiber, the service as it sees it."""

    def __init__(self, ctx: Context, fiber: Fiber) -> None:
        self.root, self.fiber, self.ctx = ctx, fiber, fiber.ctx
        self.timer: Timer = self.ctx.use(TIMER)
        self.heard: list[object] = []

    def labels(self) -> list[str]:
        return [effect.label for effect in self.fiber.effects if effect.label != "body"]


@asynccontextmanager
async def user() -> AsyncIterator[User]:
    root = Context()
    await root.plugin(timer)
    fiber = await root.plugin(lambda ctx: None, inject=[TIMER], name="user")
    it = User(root, fiber)
    yield it
    await root.dispose()
    assert root.statistics().tasks == 0


@aio_in_virtual_time
async def test_a_timeout_fires_once_and_then_leaves_nothing() -> None:
    async with user() as it:
        it.timer.timeout(lambda: it.heard.append("late"), 1000)
        assert it.labels() == ["ctx.timeout()"]
        await asyncio.sleep(0.999)
        assert it.heard == []
        await asyncio.sleep(5)

        assert it.heard == ["late"]
        assert it.labels() == []


@aio_in_virtual_time
async def test_a_timeout_that_is_undone_does_not_fire() -> None:
    async with user() as it:
        effect = it.timer.timeout(lambda: it.heard.append("late"), 1000)
        effect()
        await asyncio.sleep(5)

        assert (it.heard, it.labels()) == ([], [])


@aio_in_virtual_time
async def test_the_methods_are_attributes_of_contexts_that_inject_the_timer() -> None:
    async with user() as it:
        it.ctx.timeout(lambda: it.heard.append("late"), 10)
        await it.ctx.timeout(20)

        assert it.heard == ["late"]
        stranger = await it.root.plugin(lambda ctx: None, name="stranger")
        with pytest.raises(ServiceUnavailable, match='cannot get property "timer" without inject'):
            _ = stranger.ctx.timeout


@aio_in_virtual_time
async def test_a_wait_ends_with_the_plugin_by_an_error() -> None:
    async with user() as it:
        waits = asyncio.ensure_future(it.ctx.timeout(60_000))
        ticks = asyncio.ensure_future(anext(it.ctx.interval(60_000)))
        await asyncio.sleep(0)
        await it.fiber.dispose()

        for waiting in (waits, ticks):
            with pytest.raises(KernelError, match="Context has been disposed"):
                await waiting


@aio_in_virtual_time
async def test_a_wait_that_is_given_up_leaves_no_timer() -> None:
    async with user() as it:
        wait = asyncio.ensure_future(it.ctx.timeout(60_000))
        await asyncio.sleep(0)
        wait.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

        assert it.labels() == []


@aio_in_virtual_time
async def test_an_interval_fires_until_the_plugin_goes() -> None:
    async with user() as it:
        it.timer.interval(lambda: it.heard.append("tick"), 1000)
        await asyncio.sleep(3.5)
        await it.fiber.dispose()
        await asyncio.sleep(10)

        assert it.heard == ["tick"] * 3


@aio_in_virtual_time
async def test_an_interval_does_not_start_what_is_still_running() -> None:
    async with user() as it:

        async def slow() -> None:
            it.heard.append("begins")
            await asyncio.sleep(2.5)
            it.heard.append("ends")

        it.timer.interval(slow, 1000)
        await asyncio.sleep(4.2)

        # due at 1, 2, 3 and 4 s; the first runs until 3.5 s
        assert it.heard == ["begins", "ends", "begins"]


@aio_in_virtual_time
async def test_an_iterated_interval_counts_the_times_and_skips_those_it_missed() -> None:
    async with user() as it:
        async for number in it.timer.interval(1000):
            it.heard.append(number)
            if number == 2:
                await asyncio.sleep(2.5)  # until 4.5 s
            if number >= 5:
                break

        assert it.heard == [1, 2, 5]
        assert it.labels() == []


@aio_in_virtual_time
async def test_a_throttled_function_is_called_at_once_and_once_more_at_the_end() -> None:
    async with user() as it:
        limited = it.timer.throttle(it.heard.append, 1000)
        for word in ("first", "second", "third"):
            limited(word)
        assert it.heard == ["first"]
        await asyncio.sleep(0.9)
        assert it.heard == ["first"]
        await asyncio.sleep(0.2)
        assert it.heard == ["first", "third"]
        await asyncio.sleep(5)
        limited("fourth")

        assert it.heard == ["first", "third", "fourth"]


@aio_in_virtual_time
async def test_a_debounced_function_is_called_when_there_is_peace() -> None:
    async with user() as it:
        limited = it.timer.debounce(it.heard.append, 1000)
        for word in ("first", "second", "third"):
            limited(word)
            await asyncio.sleep(0.8)
        assert it.heard == []
        await asyncio.sleep(0.3)

        assert it.heard == ["third"]


@pytest.mark.parametrize("way", ["throttle", "debounce"])
@aio_in_virtual_time
async def test_a_limited_function_is_silent_once_it_or_its_plugin_is_gone(way: str) -> None:
    async with user() as it:
        make = getattr(it.timer, way)
        one, two = make(it.heard.append, 1000), make(it.heard.append, 1000)
        for limited in (one, two):
            limited("first")
            limited("second")
        before = list(it.heard)
        one.dispose()
        assert it.labels() == [f"ctx.{way}()"]
        await it.fiber.dispose()
        one("late")
        two("late")
        await asyncio.sleep(10)

        assert it.heard == before


@pytest.mark.parametrize("is_async", [False, True])
@aio_in_virtual_time
async def test_a_callback_that_fails_is_reported_like_a_task_that_died(is_async: bool) -> None:
    async with user() as it:
        it.root.kernel.on_failure = lambda error, label: it.heard.append(f"{label}: {error}")

        async def later() -> None:
            raise ValueError("no")

        def now() -> None:
            raise ValueError("no")

        it.timer.timeout(later if is_async else now, 10)
        await asyncio.sleep(1)

        assert it.heard == ["a timeout of user: no"] if not is_async else ["task a timeout of user: no"]


@aio_in_virtual_time
async def test_users_of_the_timer_stop_when_the_row_goes() -> None:
    async with user() as it:
        it.timer.interval(lambda: it.heard.append("tick"), 1000)
        await it.root.registry.delete(timer)
        await asyncio.sleep(5)

        assert it.heard == []
        assert it.fiber.state.name == "PENDING"
        assert it.root.statistics().accessors == 0


@pytest.mark.parametrize("ms", [-1, float("inf"), float("nan")])
@aio_in_virtual_time
async def test_a_time_that_is_none_is_refused(ms: float) -> None:
    async with user() as it:
        with pytest.raises(ValueError, match="must be 0 ms or more"):
            it.timer.debounce(print, ms)
        with pytest.raises(ValueError, match="must be 0 ms or more"):
            it.timer.timeout(print, ms)

        assert it.labels() == []


@pytest.mark.parametrize("is_async", [False, True])
@aio_in_virtual_time
async def test_nothing_is_called_while_the_plugin_is_being_undone(is_async: bool) -> None:
    """What it opened after its timers may be closed already."""
    async with user() as it:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context))

        async def later() -> None:
            it.heard.append("called")

        what = later if is_async else lambda: it.heard.append("called")
        throttled, debounced = it.timer.throttle(what, 10), it.timer.debounce(what, 10)

        async def slow() -> None:
            throttled()
            debounced()
            await asyncio.sleep(1)

        it.ctx.effect(lambda: slow)
        it.timer.interval(what, 10)
        it.timer.timeout(what, 10)
        it.ctx.effect(lambda: slow)
        await it.fiber.dispose()

        assert (it.heard, failures) == ([], [])
