"""The write policy of one session on a manual clock."""

import asyncio
import itertools

import pytest

from dsh.persistence.write_behind import RETRY_FIRST_S, RETRY_LIMIT_S, TELL_AFTER_S, WriteBehind
from tests.aio import aio
from tests.persistence.clock import ManualClock, settle

WINDOW_S = 0.2


class Store:
    """A log of numbers and what of it is durable. A write takes what is there when it starts."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = 0
        self.stored = 0
        self.batches: list[tuple[int, int]] = []
        self.gate: asyncio.Event | None = None
        self.failures: list[Exception] = []
        self.told: list[str] = []
        self._is_writing = False
        self.writes = WriteBehind(
            self.write,
            lambda: self.log > self.stored,
            WINDOW_S,
            schedule=self.clock,
            on_trouble=lambda error: self.told.append(str(error)),
        )

    def append(self) -> None:
        self.log += 1
        self.writes.touch()

    async def write(self) -> None:
        assert not self._is_writing, "one write at a time"
        self._is_writing = True
        try:
            stop = self.log
            if self.gate is not None:
                await self.gate.wait()
            if self.failures:
                raise self.failures.pop(0)
            self.batches.append((self.stored, stop))
            self.stored = stop
        finally:
            self._is_writing = False


@aio
async def test_the_window_is_fixed_by_its_first_event() -> None:
    store = Store()
    for _ in range(20):  # 10 ms apart: the last one comes at 190 ms
        store.append()
        await store.clock.advance(0.01)

    assert store.batches == [(0, 20)]
    assert store.clock.now == pytest.approx(0.2)
    assert store.clock.pending == []


@aio
async def test_events_during_a_write_open_their_own_window() -> None:
    store = Store()
    store.gate = asyncio.Event()
    store.append()
    await store.clock.advance(0.2)
    store.append()
    await store.clock.advance(0.1)
    store.gate.set()
    await settle()
    assert store.batches == [(0, 1)]

    await store.clock.advance(0.1)
    assert store.batches == [(0, 1), (1, 2)]


@aio
async def test_a_timer_that_fires_during_a_write_starts_the_next_one_at_its_end() -> None:
    store = Store()
    store.gate = asyncio.Event()
    store.append()
    await store.clock.advance(0.2)
    store.append()
    await store.clock.advance(0.3)
    assert store.batches == []

    store.gate.set()
    await settle()
    assert store.batches == [(0, 1), (1, 2)]


@aio
async def test_two_flushes_share_one_write_and_cancel_the_timer() -> None:
    store = Store()
    store.append()
    store.append()

    await asyncio.gather(store.writes.flush(), store.writes.flush())

    assert store.batches == [(0, 2)]
    assert store.clock.pending == []


@aio
async def test_a_flush_of_nothing_does_nothing() -> None:
    store = Store()
    await store.writes.flush()
    assert store.batches == []


@aio
async def test_a_flush_takes_what_comes_while_it_runs_and_sets_no_timer() -> None:
    store = Store()
    store.gate = asyncio.Event()
    store.append()
    flush = asyncio.create_task(store.writes.flush())
    await settle()
    store.append()
    assert store.clock.pending == []

    store.gate.set()
    await flush
    assert store.batches == [(0, 1), (1, 2)]

    store.append()  # the barrier is closed: a window of its own
    assert store.clock.pending == [pytest.approx(0.2)]


@aio
async def test_a_flush_waits_for_a_running_write_and_does_its_failed_part_again() -> None:
    store = Store()
    store.gate = asyncio.Event()
    store.failures = [OSError("full")]
    store.append()
    await store.clock.advance(0.2)
    flush = asyncio.create_task(store.writes.flush())
    await settle()

    store.gate.set()
    await flush

    assert store.batches == [(0, 1)]


@aio
async def test_a_failed_flush_is_told_to_all_its_callers_and_loses_nothing() -> None:
    store = Store()
    store.failures = [OSError("full")]
    store.append()

    answers = await asyncio.gather(store.writes.flush(), store.writes.flush(), return_exceptions=True)

    assert [str(answer) for answer in answers] == ["full", "full"]
    await store.writes.flush()
    assert store.batches == [(0, 1)]


@aio
async def test_a_failed_background_write_is_tried_again_with_growing_waits() -> None:
    store = Store()
    store.failures = [OSError("full")] * 8
    store.append()
    attempts = []
    while store.log > store.stored:
        left = len(store.failures)
        await store.clock.advance(0.1)
        if len(store.failures) < left or store.batches:
            attempts.append(store.clock.now)

    waits = [after - before for before, after in itertools.pairwise(attempts)]
    assert waits == [pytest.approx(s) for s in (1, 2, 4, 8, 16, 30, 30, 30)]
    assert (RETRY_FIRST_S, RETRY_LIMIT_S) == (1.0, 30.0)
    assert store.batches == [(0, 1)]
    assert store.clock.pending == []


@aio
async def test_trouble_is_told_once_and_only_when_it_lasts() -> None:
    store = Store()
    store.failures = [OSError("busy")]
    store.append()
    for seconds in (0.2, RETRY_FIRST_S, TELL_AFTER_S):
        await store.clock.advance(seconds)
    assert (store.told, store.batches) == ([], [(0, 1)])

    for _ in range(2):
        store.failures = [OSError("full")] * 3
        store.append()
        await store.clock.advance(0.2)
        await store.clock.advance(TELL_AFTER_S - 0.1)
        assert store.told == []
        await store.clock.advance(0.1)
        assert store.told == ["full"]
        await store.clock.advance(30)
        await store.clock.advance(30)
        assert store.told == ["full"]
        assert store.clock.pending == []
        store.told.clear()


@aio
async def test_what_a_barrier_tells_its_caller_is_not_told_again_at_once() -> None:
    store = Store()
    store.failures = [OSError("full")]
    store.append()
    with pytest.raises(OSError, match="full"):
        await store.writes.flush()
    assert store.told == []

    store.writes.close()
    await store.clock.advance(60)
    assert (store.told, store.batches) == ([], [])


@aio
async def test_an_event_after_a_failure_opens_a_full_window_and_keeps_the_order() -> None:
    store = Store()
    store.failures = [OSError("full")]
    store.append()
    await store.clock.advance(0.2)
    store.append()
    assert pytest.approx(0.4) in store.clock.pending
    store.append()

    await store.clock.advance(0.2)
    assert store.batches == [(0, 3)]


@aio
async def test_a_cancelled_flush_goes_on_for_the_others() -> None:
    store = Store()
    store.gate = asyncio.Event()
    store.append()
    one, other = (asyncio.create_task(store.writes.flush()) for _ in range(2))
    await settle()

    one.cancel()
    await settle()
    store.gate.set()
    await other

    assert one.cancelled()
    assert store.batches == [(0, 1)]


@aio
async def test_after_close_only_a_flush_writes() -> None:
    store = Store()
    store.append()
    store.writes.close()
    store.append()
    assert store.clock.pending == []

    await store.writes.flush()
    assert store.batches == [(0, 2)]
