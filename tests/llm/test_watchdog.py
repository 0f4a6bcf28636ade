"""The watchdog: what ends a read, what does not, and that it costs one timer."""

import asyncio
from typing import Any

import pytest

from dsh.kernel import CancelToken
from dsh.llm.failure import LlmError
from dsh.llm.transport.watchdog import StreamLimits, Watchdog
from tests.aio import aio_in_virtual_time as aio


async def never() -> None:
    await asyncio.get_running_loop().create_future()


def dog(signal: CancelToken | None = None, **limits: Any) -> Watchdog:
    return Watchdog(StreamLimits(**limits), signal, "the model")


@aio
async def test_silence_is_interrupted_where_it_waits() -> None:
    watchdog = dog(idle_ms=20)
    with pytest.raises(LlmError, match="the model sent nothing within 20 ms") as caught, watchdog:
        await never()
    watchdog.close()

    assert caught.value.code == "TIMEOUT"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


@aio
async def test_reads_that_return_in_time_may_go_on_for_ever() -> None:
    watchdog = dog(idle_ms=300)
    for _ in range(6):
        with watchdog:
            await asyncio.sleep(0.06)
    watchdog.close()


@aio
async def test_time_between_reads_does_not_count() -> None:
    watchdog = dog(idle_ms=100)
    for _ in range(2):
        with watchdog:
            await asyncio.sleep(0)
        await asyncio.sleep(0.15)
    watchdog.close()


@aio
async def test_a_cancelled_signal_interrupts_and_refuses_what_follows() -> None:
    signal = CancelToken()
    watchdog = dog(signal)
    asyncio.get_running_loop().call_later(0.01, signal.cancel, "enough")
    for _ in range(2):
        with pytest.raises(LlmError) as caught, watchdog:
            await never()
        assert caught.value.code == "ABORTED"
    watchdog.close()


@aio
async def test_the_first_verdict_stays() -> None:
    signal = CancelToken()
    watchdog = dog(signal, idle_ms=10)
    with pytest.raises(LlmError) as caught, watchdog:
        await never()
    signal.cancel("late")
    assert caught.value.code == "TIMEOUT"
    with pytest.raises(LlmError) as again, watchdog:
        await never()
    watchdog.close()

    assert again.value.code == "TIMEOUT"


@aio
async def test_a_failure_of_the_read_that_its_interruption_causes_is_the_verdict() -> None:
    watchdog = dog(idle_ms=10)
    with pytest.raises(LlmError) as caught, watchdog:
        try:
            await never()
        except asyncio.CancelledError:
            raise OSError("broken off") from None
    watchdog.close()

    assert caught.value.code == "TIMEOUT"


@aio
async def test_a_failure_of_the_read_itself_passes() -> None:
    watchdog = dog()
    with pytest.raises(OSError, match="reset"), watchdog:
        raise OSError("reset")
    watchdog.close()


@aio
async def test_a_task_that_is_cancelled_from_outside_stays_cancelled() -> None:
    async def read() -> None:
        watchdog = dog(idle_ms=10_000)
        try:
            with watchdog:
                await never()
        finally:
            watchdog.close()

    task = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@aio
async def test_a_task_going_down_outranks_a_verdict_of_the_same_moment() -> None:
    signal = CancelToken()

    async def read() -> None:
        with dog(signal):
            await never()

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    signal.cancel("user")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@aio
async def test_limits_on_the_first_token_and_the_whole_call() -> None:
    for watchdog, words in ((dog(first_token_ms=15), "did not begin"), (dog(total_ms=15), "did not finish")):
        with pytest.raises(LlmError, match=words):
            while True:
                with watchdog:
                    await asyncio.sleep(0.005)
        watchdog.close()

    watchdog = dog(first_token_ms=10)
    watchdog.saw_chunk()
    with watchdog:
        await asyncio.sleep(0.03)
    watchdog.close()


@aio
async def test_a_total_that_passed_between_reads_is_found_at_the_next() -> None:
    watchdog = dog(total_ms=10)
    await asyncio.sleep(0.03)
    with pytest.raises(LlmError, match="did not finish"), watchdog:
        await never()
    watchdog.close()


@aio
async def test_ten_thousand_reads_arm_one_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    armed: list[float] = []
    call_at = loop.call_at

    def counted(when: float, *args: Any, **more: Any) -> asyncio.TimerHandle:
        armed.append(when)
        return call_at(when, *args, **more)

    monkeypatch.setattr(loop, "call_at", counted)
    watchdog = dog(idle_ms=300_000, first_token_ms=60_000, total_ms=600_000)
    for _ in range(10_000):
        with watchdog:
            pass
    watchdog.close()

    assert len(armed) == 1
