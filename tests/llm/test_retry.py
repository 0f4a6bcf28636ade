"""The retry policy: how a row states it, its key in the log, the length of a wait."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.kernel import ValidationError, resolve_config
from dsh.llm.adapter import RetryPolicy
from dsh.llm.retry import RetryConfig, backoff_delay_ms, policy_key, retry_delay_ms


class Fixed(random.Random):
    """A source of chance that always gives the same number."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self._value = value

    def random(self) -> float:
        return self._value


def test_the_defaults_are_those_of_the_design() -> None:
    policy = resolve_config(RetryConfig, None).policy()

    assert policy == RetryPolicy()
    assert policy_key(policy) == (
        '["normal",5,["EMPTY_RESPONSE","HTTP_408","HTTP_425","INSUFFICIENT_SYSTEM_RESOURCE","MALFORMED_RESPONSE",'
        '"RATE_LIMIT","SERVER","STREAM_CLOSED","TIMEOUT","TRANSPORT"],500,10000,0.1]'
    )


def test_the_key_sorts_codes_prints_whole_numbers_and_leaves_the_provider_limit_out() -> None:
    policy = RetryPolicy(
        retryable_codes=("b", "a", "\U0001f3f7", "\uffff"), jitter_ratio=0.0, max_provider_delay_ms=1
    )

    assert policy_key(policy) == '["normal",5,["a","b","🏷","\uffff"],500,10000,0]'
    assert policy_key(RetryPolicy(mode="always")) == '["always",500,10000,0.1]'
    assert policy_key(RetryPolicy(initial_delay_ms=0.5)) != policy_key(RetryPolicy())


@pytest.mark.parametrize(
    "raw",
    [
        {"mode": "sometimes"},
        {"maxRetries": -1},
        {"maxRetries": 1.5},
        {"maxRetries": 2**53},
        {"retryableCodes": []},
        {"retryableCodes": ["A", "A"]},
        {"retryableCodes": [" "]},
        {"backoff": {"initialDelayMs": 0}},
        {"backoff": {"initialDelayMs": 20_000}},
        {"backoff": {"maxDelayMs": 2**31}},
        {"backoff": {"jitterRatio": 1.1}},
        {"maxProviderDelayMs": 0},
        {"unknown": 1},
        {"backoff": {"unknown": 1}},
    ],
)
def test_a_policy_that_cannot_be_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        resolve_config(RetryConfig, raw)


def test_mode_always_tolerates_the_keys_of_mode_normal() -> None:
    raw = {"mode": "always", "maxRetries": 2, "retryableCodes": [], "backoff": {"maxDelayMs": 600}}
    policy = resolve_config(RetryConfig, raw).policy()

    assert (policy.mode, policy.max_retries, policy.max_delay_ms) == ("always", 2, 600)


def test_waits_double_up_to_the_limit() -> None:
    # a draw of 0.5 is the middle: no jitter
    waits = [backoff_delay_ms(RetryPolicy(), retry, Fixed(0.5)) for retry in range(1, 8)]

    assert waits == [500, 1000, 2000, 4000, 8000, 10000, 10000]


def test_jitter_is_a_tenth_to_either_side_and_never_beyond_the_limit() -> None:
    assert backoff_delay_ms(RetryPolicy(), 1, Fixed(0.0)) == 450
    assert backoff_delay_ms(RetryPolicy(), 1, Fixed(1.0)) == pytest.approx(550)
    assert backoff_delay_ms(RetryPolicy(), 6, Fixed(1.0)) == 10_000


def test_what_the_provider_asks_for_is_taken_exactly_up_to_its_limit() -> None:
    policy = RetryPolicy(max_provider_delay_ms=60_000)

    assert retry_delay_ms(policy, 1, 59_999, Fixed(0)) == 59_999
    assert retry_delay_ms(policy, 1, 60_000, Fixed(0)) == 60_000
    assert retry_delay_ms(policy, 1, 60_001, Fixed(0)) is None
    always = RetryPolicy(mode="always", max_provider_delay_ms=60_000)
    assert retry_delay_ms(always, 1, 60_001, Fixed(0.5)) == 500


@given(st.integers(1, 10_000), st.integers())
def test_a_wait_stays_between_its_bounds(retry: int, seed: int) -> None:
    wait = backoff_delay_ms(RetryPolicy(), retry, random.Random(seed))

    assert 450 <= wait <= 10_000
