"""Retries: when, how often, how long, what is logged, and what ends a wait."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from dsh.agent.contract import AGENT_REQUEST_ERROR, RequestFailed, RetryRequest
from dsh.kernel import Cancelled, CancelToken, Context, ScopeTarget, ValidationError, resolve_config
from dsh.llm.adapter import DEFAULT_RETRYABLE_CODES, RetryPolicy
from dsh.llm.failure import LlmFailure
from dsh.llm.retry import policy_key
from dsh.plugins import llm_retry
from dsh.plugins.llm_retry import RetryExecutor
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from tests.aio import aio

NORMAL = RetryPolicy()
SERVER = LlmFailure("boom", "SERVER", 503)


class Middle(random.Random):
    """Draws the middle: no jitter."""

    def random(self) -> float:
        return 0.5


class AgentStub:
    """What the executor reads of an agent: its session, with turn 1 and step 2 open."""

    def __init__(self) -> None:
        self.session = Session(SessionHeader(id="s", created_at=0))
        self.session.append("turn/start", {"turn": 1})
        self.session.append("step/start", {"turn": 1, "step": 1})
        self.session.append("step/end", {"turn": 1, "step": 1})
        self.session.append("step/start", {"turn": 1, "step": 2})

    def rows(self, kind: str) -> list[Any]:
        return [event.data for event in self.session.events() if event.type == kind]


class Bench:
    """An executor with a clock that never waits, and an agent to fail for."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.agent = AgentStub()
        self.signal = CancelToken()
        ids = iter(f"r{n}" for n in range(1, 100))
        self.executor = RetryExecutor(Context(), sleep=self.sleep, rng=Middle(), new_id=lambda: next(ids))
        self.hold: asyncio.Event | None = None

    async def sleep(self, token: CancelToken, seconds: float) -> None:
        self.waits.append(seconds)
        if self.hold is not None:
            held = asyncio.ensure_future(self.hold.wait())
            try:
                await token.race(held)
            finally:
                held.cancel()

    def failed(
        self, failure: LlmFailure = SERVER, policy: RetryPolicy | None = NORMAL, **changes: Any
    ) -> RequestFailed:
        fields: dict[str, Any] = {
            "agent": self.agent,
            "turn": 1,
            "step": 2,
            "provider": "p",
            "failure": failure,
            "retry_policy": policy,
            "signal": self.signal,
        }
        return RequestFailed(**{**fields, **changes})

    async def recover(
        self, failed: RequestFailed, others: Callable[[], Awaitable[RetryRequest | None]] | None = None
    ) -> RetryRequest | None:
        return await self.executor.recover(failed, others or nobody)


async def nobody() -> RetryRequest | None:
    return None


async def somebody() -> RetryRequest | None:
    return {"kind": "retry"}


@aio
async def test_a_retry_is_logged_before_the_wait_and_when_it_starts() -> None:
    bench = Bench()
    bench.hold = asyncio.Event()
    waiting = asyncio.ensure_future(bench.recover(bench.failed()))
    await asyncio.sleep(0)
    expected = {
        "retryId": "r1",
        "turn": 1,
        "step": 2,
        "provider": "p",
        "mode": "normal",
        "policyKey": policy_key(RetryPolicy()),
        "retry": 1,
        "maxRetries": 5,
        "delayMs": 500,
        "failure": {"message": "boom", "code": "SERVER", "status": 503},
    }

    assert bench.agent.rows("llm/retry-started") == []
    (retry,) = bench.agent.rows("llm/retry")
    assert list(retry) == list(expected)
    assert retry == expected
    assert type(retry["delayMs"]) is int, "a whole number is written without a fraction"
    bench.hold.set()

    assert await waiting == {"kind": "retry"}
    (started,) = bench.agent.rows("llm/retry-started")
    assert list(started.items()) == [("retryId", "r1"), ("turn", 1), ("step", 2), ("retry", 1)]


@aio
async def test_a_chain_keeps_its_id_doubles_its_waits_and_stops_at_the_budget() -> None:
    bench = Bench()
    answers = [await bench.recover(bench.failed()) for _ in range(6)]

    assert answers == [{"kind": "retry"}] * 5 + [None]
    assert bench.waits == [0.5, 1, 2, 4, 8]
    assert [row["retry"] for row in bench.agent.rows("llm/retry")] == [1, 2, 3, 4, 5]
    assert {row["retryId"] for row in bench.agent.rows("llm/retry")} == {"r1"}


@pytest.mark.parametrize("budget", [0, 1, 5])
@aio
async def test_a_budget_of_n_allows_n_retries(budget: int) -> None:
    bench = Bench()
    policy = RetryPolicy(max_retries=budget)
    answers = [await bench.recover(bench.failed(policy=policy)) for _ in range(budget + 2)]

    assert answers == [{"kind": "retry"}] * budget + [None, None]


@aio
async def test_another_route_policy_or_step_counts_on_its_own() -> None:
    bench = Bench()
    one = RetryPolicy(max_retries=1)
    assert await bench.recover(bench.failed(policy=one))
    assert await bench.recover(bench.failed(policy=one)) is None

    assert await bench.recover(bench.failed(policy=one, provider="q"))
    assert await bench.recover(bench.failed(policy=RetryPolicy(max_retries=2)))
    assert await bench.recover(bench.failed(policy=one)) is None
    bench.agent.session.append("step/end", {"turn": 1, "step": 2})
    bench.agent.session.append("step/start", {"turn": 1, "step": 3})
    assert await bench.recover(bench.failed(policy=one, step=3))
    assert [row["retryId"] for row in bench.agent.rows("llm/retry")] == ["r1", "r2", "r3", "r4"]


@aio
async def test_the_limit_on_the_providers_wait_is_no_other_policy() -> None:
    bench = Bench()
    await bench.recover(bench.failed(policy=RetryPolicy(max_provider_delay_ms=1)))
    await bench.recover(bench.failed(policy=RetryPolicy(max_provider_delay_ms=2)))

    assert [row["retry"] for row in bench.agent.rows("llm/retry")] == [1, 2]


@pytest.mark.parametrize("code", DEFAULT_RETRYABLE_CODES)
@aio
async def test_default_codes_are_retried(code: str) -> None:
    bench = Bench()
    assert await bench.recover(bench.failed(LlmFailure("m", code))) == {"kind": "retry"}


@pytest.mark.parametrize(
    "code", ["AUTH", "QUOTA", "INVALID_REQUEST", "CONTEXT_WINDOW_EXCEEDED", "HTTP_404", "ABORTED"]
)
@aio
async def test_other_codes_are_left_to_the_other_listeners(code: str) -> None:
    bench = Bench()

    assert await bench.recover(bench.failed(LlmFailure("m", code))) is None
    assert await bench.recover(bench.failed(LlmFailure("m", code)), somebody) == {"kind": "retry"}
    assert bench.agent.rows("llm/retry") == []


@aio
async def test_without_a_policy_nothing_is_retried() -> None:
    bench = Bench()

    assert await bench.recover(bench.failed(policy=None)) is None
    assert await bench.recover(bench.failed(policy=None), somebody) == {"kind": "retry"}


@aio
async def test_what_the_provider_asks_for_is_waited_exactly_and_too_long_ends_it() -> None:
    bench = Bench()
    wait = msgspec.structs.replace(SERVER, provider_retry_after_ms=3000)
    endless = msgspec.structs.replace(SERVER, provider_retry_after_ms=86_400_000)

    assert await bench.recover(bench.failed(wait)) == {"kind": "retry"}
    assert await bench.recover(bench.failed(endless)) is None
    assert bench.waits == [3.0]
    assert [row["delayMs"] for row in bench.agent.rows("llm/retry")] == [3000]


@pytest.mark.parametrize("code", ["INVALID_REQUEST", "AUTH", "SERVER"])
@aio
async def test_mode_always_retries_anything_without_end(code: str) -> None:
    bench = Bench()
    policy = RetryPolicy(mode="always")
    failure = LlmFailure("m", code, provider_retry_after_ms=86_400_000)
    answers = [await bench.recover(bench.failed(failure, policy)) for _ in range(8)]

    assert answers == [{"kind": "retry"}] * 8
    assert bench.waits == [0.5, 1, 2, 4, 8, 10, 10, 10]
    row = bench.agent.rows("llm/retry")[0]
    assert "maxRetries" not in row
    assert (row["mode"], row["policyKey"]) == ("always", '["always",500,10000,0.1]')


@aio
async def test_mode_always_lets_the_others_recover_first_and_survives_their_failure() -> None:
    bench = Bench()

    async def broken() -> RetryRequest | None:
        raise RuntimeError("no luck")

    assert await bench.recover(bench.failed(policy=RetryPolicy(mode="always")), somebody) == {"kind": "retry"}
    assert bench.agent.rows("llm/retry") == []
    assert await bench.recover(bench.failed(policy=RetryPolicy(mode="always")), broken) == {"kind": "retry"}
    assert len(bench.agent.rows("llm/retry")) == 1


@aio
async def test_a_cancellation_while_the_others_recover_ends_it_and_warns_of_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()

    async def cancelled() -> RetryRequest | None:
        bench.signal.cancel({"kind": "user"})
        bench.signal.raise_if_cancelled()
        return None

    assert await bench.recover(bench.failed(policy=RetryPolicy(mode="always")), cancelled) is None
    assert bench.agent.rows("llm/retry") == []
    assert caplog.messages == []


@aio
async def test_a_cancelled_turn_ends_the_wait_without_a_retry() -> None:
    bench = Bench()
    bench.hold = asyncio.Event()
    waiting = asyncio.ensure_future(bench.recover(bench.failed()))
    await asyncio.sleep(0)
    bench.signal.cancel({"kind": "user"})

    assert await waiting is None
    assert len(bench.agent.rows("llm/retry")) == 1
    assert bench.agent.rows("llm/retry-started") == []
    assert await bench.recover(bench.failed()) is None
    assert len(bench.agent.rows("llm/retry")) == 1


@aio
async def test_a_wait_that_was_cut_off_is_nobody_elses_to_recover() -> None:
    bench = Bench()
    bench.hold = asyncio.Event()
    waiting = asyncio.ensure_future(bench.recover(bench.failed(), somebody))
    await asyncio.sleep(0)
    bench.signal.cancel({"kind": "user"})

    assert await waiting is None


@aio
async def test_a_cancellation_in_the_moment_in_which_the_wait_ends_counts() -> None:
    bench = Bench()

    async def over(token: CancelToken, seconds: float) -> None:
        bench.signal.cancel({"kind": "user"})

    executor = RetryExecutor(Context(), sleep=over)

    assert await executor.recover(bench.failed(), nobody) is None
    assert bench.agent.rows("llm/retry-started") == []


@aio
async def test_two_programs_do_not_wait_in_step() -> None:
    benches = [Bench(), Bench()]
    for bench in benches:
        executor = RetryExecutor(Context(), sleep=bench.sleep)
        for _ in range(5):
            await executor.recover(bench.failed(), nobody)

    assert benches[0].waits != benches[1].waits


class Watched(CancelToken):
    """Counts who follows it. State: just this."""

    followers = 0

    def on_cancel(self, callback: Callable[[Any], None]) -> Callable[[], None]:
        undo = super().on_cancel(callback)
        self.followers += 1

        def ended() -> None:
            self.followers -= 1
            undo()

        return ended


@aio
async def test_a_retry_that_is_over_leaves_nothing_on_the_signal_of_its_turn() -> None:
    bench = Bench()
    signal = Watched()
    for _ in range(7):
        await bench.recover(bench.failed(signal=signal))

    assert len(bench.waits) == 5
    assert signal.followers == 0


@aio
async def test_what_is_beyond_budget_or_bearable_wait_is_left_to_the_others() -> None:
    bench = Bench()
    endless = msgspec.structs.replace(SERVER, provider_retry_after_ms=86_400_000)

    assert await bench.recover(bench.failed(policy=RetryPolicy(max_retries=0)), somebody) == {"kind": "retry"}
    assert await bench.recover(bench.failed(endless), somebody) == {"kind": "retry"}
    assert bench.agent.rows("llm/retry") == []


@aio
async def test_disposal_waits_for_the_recovery_and_later_calls_do_nothing() -> None:
    bench = Bench()
    bench.hold = asyncio.Event()
    waiting = asyncio.ensure_future(bench.recover(bench.failed()))
    await asyncio.sleep(0)
    await bench.executor.close()

    assert bench.executor.waiting == 0
    assert await waiting is None
    assert bench.agent.rows("llm/retry-started") == []
    for late in (
        bench.failed(),
        bench.failed(LlmFailure("m", "AUTH")),
        bench.failed(policy=None),
        bench.failed(policy=RetryPolicy(mode="always")),
    ):
        assert await bench.recover(late, somebody) is None, "nor does it ask the others"


@aio
async def test_the_row_listens_and_its_disposal_ends_the_wait() -> None:
    ctx = Context()
    bench = Bench()
    fiber = ctx.plugin(llm_retry, {})
    await fiber
    failed = bench.failed(policy=RetryPolicy(initial_delay_ms=60_000, max_delay_ms=60_000))
    subject = ScopeTarget(failed.agent)
    waiting = asyncio.ensure_future(ctx.waterfall(AGENT_REQUEST_ERROR, failed, nobody, subject=subject))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await fiber.dispose()

    assert await waiting is None
    assert len(bench.agent.rows("llm/retry")) == 1
    await ctx.dispose()


@aio
async def test_the_real_clock_waits_and_stops() -> None:
    token = CancelToken()
    await llm_retry.sleep(token, 0.001)
    asyncio.get_running_loop().call_later(0.005, token.cancel, "enough")
    with pytest.raises(Cancelled):
        await llm_retry.sleep(token, 60)


def test_the_row_has_no_options() -> None:
    with pytest.raises(ValidationError):
        resolve_config(llm_retry.Config, {"maxRetries": 3})
