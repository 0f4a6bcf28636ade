"""Row `llm-retry`: repeats failed model attempts as the route's policy says, on the record.

The policy belongs to the provider's row; this row has no options. `llm/retry` is logged before the wait and
`llm/retry-started` when it is over, both inside the open step. How often was tried is read from the log.
"""

import asyncio
import random
import uuid
from collections.abc import Awaitable, Callable

import msgspec

from dsh.agent.contract import AGENT_REQUEST_ERROR, RequestFailed, RetryRequest
from dsh.kernel import Cancelled, CancelToken, Context, ServiceKey
from dsh.llm.adapter import RetryPolicy
from dsh.llm.retry import number, policy_key, retry_delay_ms
from dsh.session.log import Session
from dsh.session.value import JsonObject

RETRIES: ServiceKey["RetryExecutor"] = ServiceKey("llmRetry")
"""Provided so that there is one: two would each repeat an attempt, so one failure would be retried twice."""

provide = [RETRIES]

Next = Callable[[], Awaitable[RetryRequest | None]]
Sleep = Callable[[CancelToken, float], Awaitable[None]]


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The row has no options."""


def apply(ctx: Context, config: Config) -> None:
    executor = RetryExecutor(ctx)
    ctx.provide(RETRIES, executor)
    ctx.effect(lambda: executor.close, "waiting retries")
    ctx.on(AGENT_REQUEST_ERROR, executor.recover)


async def sleep(token: CancelToken, seconds: float) -> None:
    """Wait on the real clock; raises `Cancelled` with the token."""
    await token.sleep(seconds)


class RetryExecutor:
    """Decides and waits. State: the recoveries under way, and whether the row is gone."""

    def __init__(
        self,
        ctx: Context,
        *,
        sleep: Sleep = sleep,
        rng: random.Random | None = None,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self._ctx = ctx
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._new_id = new_id
        self._gone = CancelToken()
        self._active: set[asyncio.Future[None]] = set()

    @property
    def waiting(self) -> int:
        """Recoveries under way."""
        return len(self._active)

    async def close(self) -> None:
        """End every wait without a retry, and return when the recoveries have ended."""
        self._gone.cancel("llm-retry is gone")
        if self._active:
            await asyncio.wait(tuple(self._active))

    async def recover(self, failed: RequestFailed, following: Next) -> RetryRequest | None:
        """Answer a failed attempt: retry, or what the other listeners say."""
        if self._gone.cancelled:
            return None
        policy = failed.retry_policy
        if policy is None:
            return await following()
        if policy.mode == "always":
            answer = await self._others(failed, following)
            if answer is not None:
                return answer
            return await self._tracked(failed, policy)
        if failed.failure.code not in policy.retryable_codes:
            return await following()
        answer = await self._tracked(failed, policy)
        if answer is None and not failed.signal.cancelled and not self._gone.cancelled:
            return await following()
        return answer

    async def _others(self, failed: RequestFailed, following: Next) -> RetryRequest | None:
        try:
            return await following()
        except Exception as error:
            if not failed.signal.cancelled:
                self._ctx.logger.warning("another recovery of a model call failed: %s", error, exc_info=error)
            return None

    async def _tracked(self, failed: RequestFailed, policy: RetryPolicy) -> RetryRequest | None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._active.add(done)
        try:
            return await self._retry(failed, policy)
        finally:
            self._active.discard(done)
            done.set_result(None)

    async def _retry(self, failed: RequestFailed, policy: RetryPolicy) -> RetryRequest | None:
        token = CancelToken.any_of(failed.signal, self._gone)
        try:
            session, key = failed.agent.session, policy_key(policy)
            latest = _latest(session, failed, key)
            retry = 1 if latest is None else latest["retry"] + 1
            if token.cancelled or (policy.mode == "normal" and retry > policy.max_retries):
                return None
            delay_ms = retry_delay_ms(policy, retry, failed.failure.provider_retry_after_ms, self._rng)
            if delay_ms is None:
                return None
            retry_id = self._new_id() if latest is None else latest["retryId"]
            data = {
                "retryId": retry_id,
                "turn": failed.turn,
                "step": failed.step,
                "provider": failed.provider,
                "mode": policy.mode,
                "policyKey": key,
                "retry": retry,
                **({"maxRetries": policy.max_retries} if policy.mode == "normal" else {}),
                "delayMs": number(delay_ms),
                "failure": failed.failure.to_json(),
            }
            session.append("llm/retry", data)
            await self._sleep(token, delay_ms / 1000)
            token.raise_if_cancelled()
            started = {"retryId": retry_id, "turn": failed.turn, "step": failed.step, "retry": retry}
            session.append("llm/retry-started", started)
            return {"kind": "retry"}
        except Cancelled:
            return None
        finally:
            token.detach()


def _latest(session: Session, failed: RequestFailed, key: str) -> JsonObject | None:
    """The latest `llm/retry` of this step on this route under this policy."""
    event = session.last("llm/retry")
    while event is not None and event.type == "llm/retry":
        data: JsonObject = event.data
        if (data["turn"], data["step"]) != (failed.turn, failed.step):
            return None
        if data["provider"] == failed.provider and data["policyKey"] == key:
            return data
        event = session.last_before(event.seq, "llm/retry", "step/start")
    return None
