"""The retry policy of a route: how a row states it, how it is named in the log, how long a wait is."""

import random
from typing import Literal

import msgspec

from dsh.capabilities.bounds import MAX_TIMER_MS
from dsh.llm.adapter import DEFAULT_RETRYABLE_CODES, RetryPolicy
from dsh.session.value import MAX_SAFE_INT


class Backoff(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """`backoff` of a retry policy."""

    initial_delay_ms: float = 500
    """The wait before the first retry; it doubles with each further one."""
    max_delay_ms: float = 10_000
    """The longest wait of our own."""
    jitter_ratio: float = 0.1
    """By how much a wait varies to either side, 0 to 1."""

    def __post_init__(self) -> None:
        if not 0 < self.initial_delay_ms <= self.max_delay_ms <= MAX_TIMER_MS:
            raise ValueError(
                f"retry delays must satisfy 0 < initialDelayMs <= maxDelayMs <= {MAX_TIMER_MS}, "
                f"found {self.initial_delay_ms:g} and {self.max_delay_ms:g}"
            )
        if not 0 <= self.jitter_ratio <= 1:
            raise ValueError(f"jitterRatio must be 0 to 1, found {self.jitter_ratio:g}")


class RetryConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """`retryPolicy` of a provider row. In mode `always` the keys of `normal` are allowed and idle."""

    mode: Literal["normal", "always"] = "normal"
    """`normal` repeats what may pass by itself, `maxRetries` times; `always` every failure, without end."""
    max_retries: int = 5
    """Retries after the first attempt; 0 for none."""
    retryable_codes: list[str] = msgspec.field(default_factory=lambda: list(DEFAULT_RETRYABLE_CODES))
    """Failures that may pass by themselves."""
    backoff: Backoff = Backoff()
    """How long to wait where the provider does not say."""
    max_provider_delay_ms: float = 300_000
    """The longest wait that a provider may ask for; beyond it the turn ends and names the wait."""

    def __post_init__(self) -> None:
        if not 0 <= self.max_retries <= MAX_SAFE_INT:
            raise ValueError(f"maxRetries must be 0 to {MAX_SAFE_INT}, found {self.max_retries}")
        codes = self.retryable_codes
        if any(not code.strip() for code in codes) or len(set(codes)) < len(codes):
            raise ValueError(f"retryableCodes must be non-blank and without repetition, found {codes}")
        if self.mode == "normal" and not codes:
            raise ValueError("retryableCodes is empty; use maxRetries: 0 for no retries")
        if not 0 < self.max_provider_delay_ms <= MAX_TIMER_MS:
            raise ValueError(
                f"maxProviderDelayMs must be above 0 and at most {MAX_TIMER_MS}, "
                f"found {self.max_provider_delay_ms:g}"
            )

    def policy(self) -> RetryPolicy:
        """The policy as the registry keeps it."""
        return RetryPolicy(
            mode=self.mode,
            max_retries=self.max_retries,
            retryable_codes=tuple(self.retryable_codes),
            initial_delay_ms=self.backoff.initial_delay_ms,
            max_delay_ms=self.backoff.max_delay_ms,
            jitter_ratio=self.backoff.jitter_ratio,
            max_provider_delay_ms=self.max_provider_delay_ms,
        )


def policy_key(policy: RetryPolicy) -> str:
    """The text that names a policy in `llm/retry`: equal policies count their retries together.

    Compact JSON of `[mode, maxRetries, codes in order of their UTF-16 units, initialDelayMs, maxDelayMs,
    jitterRatio]`, without the second and third in mode `always`; whole numbers print without a fraction.
    """
    delays = [number(policy.initial_delay_ms), number(policy.max_delay_ms), number(policy.jitter_ratio)]
    if policy.mode == "always":
        return msgspec.json.encode(["always", *delays]).decode()
    codes = sorted(policy.retryable_codes, key=lambda code: code.encode("utf-16-be", "surrogatepass"))
    return msgspec.json.encode(["normal", policy.max_retries, codes, *delays]).decode()


def backoff_delay_ms(policy: RetryPolicy, retry: int, rng: random.Random) -> float:
    """The local wait before retry number `retry` (from 1), in milliseconds."""
    base = min(policy.initial_delay_ms * 2.0 ** min(retry - 1, 64), policy.max_delay_ms)
    jitter = policy.jitter_ratio
    return min(base * (1 - jitter + 2 * jitter * rng.random()), policy.max_delay_ms)


def retry_delay_ms(
    policy: RetryPolicy, retry: int, provider_delay_ms: float | None, rng: random.Random
) -> float | None:
    """The wait before a retry; None where the provider asks for more than is honoured and the turn ends.

    What the provider asks for is taken exactly. In mode `always` an excessive wait is replaced by the local
    one.
    """
    if provider_delay_ms is None:
        return backoff_delay_ms(policy, retry, rng)
    if provider_delay_ms <= policy.max_provider_delay_ms:
        return provider_delay_ms
    return None if policy.mode == "normal" else backoff_delay_ms(policy, retry, rng)


def number(value: float) -> float:
    """The number as the log writes it: a whole one without a fraction."""
    return int(value) if float(value).is_integer() else value
