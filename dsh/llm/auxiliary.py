"""A model call beside the turns: a title, a summary. Retried by the route's policy, without rows in the log.

The request is not one of the loop's: it is not logged as such, and no invariant compares it with the log
(`spec/tools.md` §9, `design.md` §10.20).
"""

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from dsh.kernel import CancelToken, ScopeTarget
from dsh.kernel.foreign import contained
from dsh.llm.adapter import RetryPolicy
from dsh.llm.failure import LlmError, LlmFailure
from dsh.llm.registry import LlmRegistry
from dsh.llm.request import LlmRequest
from dsh.llm.retry import retry_delay_ms
from dsh.llm.stream import close_stream
from dsh.session.assembler import BlockAssembler
from dsh.session.log import Session
from dsh.session.projection.request_usage import REQUEST_USAGE, usage_payload

Sleep = Callable[[CancelToken, float], Awaitable[None]]


class Answer(msgspec.Struct, frozen=True):
    """What a call came to."""

    blocks: Sequence[Mapping[str, Any]]
    """Every block of the reply, reasoning and tool calls included."""
    finish: str
    """The kind of its finish reason: `stop`, `max-tokens`, `tool-calls`, …; never `error` or `aborted`."""
    usage: Mapping[str, Any] | None
    """As the provider reported it, of the last attempt."""


async def ask(
    llm: LlmRegistry,
    request: LlmRequest,
    *,
    subject: ScopeTarget | None = None,
    log: Session | None = None,
    pause: Sleep = CancelToken.sleep,
    rng: random.Random | None = None,
) -> Answer:
    """Make the call, again after failures that may pass, and read the reply to its end.

    Args:
        request: its config is completed by the adapter's defaults; its `signal` ends calls and waits.
        subject: whose listeners of `llm/stream` see the call.
        log: where what each attempt used and cost is logged, under the request's purpose.

    Raises:
        LlmError: the last failure, when the policy has no further attempt.
        Cancelled: the request's signal.
        Exception: what a listener raised, or an adapter's exit as a failure.
    """
    signal, rng = request.signal or CancelToken(), rng or random.Random()
    retry = 0
    while True:
        signal.raise_if_cancelled()
        try:
            reply, policy = await _attempt(llm, request, signal, subject, log)
        except BaseException as error:
            raise contained(error, "a model call")  # noqa: B904 -- the same one, or made of it
        signal.raise_if_cancelled()
        finish = reply.finish
        if finish["kind"] not in ("error", "aborted"):
            return Answer(reply.blocks(), finish["kind"], reply.usage)
        failure = LlmFailure.from_json(finish["failure"])
        retry += 1
        delay_ms = _delay_ms(policy, failure, retry, rng)
        if delay_ms is None:
            raise LlmError(failure)
        await pause(signal, delay_ms / 1000)


async def _attempt(
    llm: LlmRegistry,
    request: LlmRequest,
    signal: CancelToken,
    subject: ScopeTarget | None,
    log: Session | None,
) -> tuple[BlockAssembler, RetryPolicy]:
    call = await llm.prepare_call(request.config, signal)
    reply = BlockAssembler()

    def log_usage() -> None:
        if log is not None and reply.usage is not None:
            route, purpose = call.config, request.purpose or "other"
            used = usage_payload(
                reply.usage, provider=route.provider, model=route.model, price=call.price, purpose=purpose
            )
            log.append(REQUEST_USAGE, used, ignorable=True)

    chunks = call.stream(msgspec.structs.replace(request, config=call.config), subject=subject)
    try:
        async for chunk in chunks:
            if signal.cancelled:
                break
            reply.push(chunk)
    except Exception:  # of a listener: what was used until then is paid for
        log_usage()
        raise
    finally:
        await close_stream(chunks)
    log_usage()
    return reply, call.retry_policy


def _delay_ms(policy: RetryPolicy, failure: LlmFailure, retry: int, rng: random.Random) -> float | None:
    """How long to wait before retry number `retry`; None where there is none. Never without end: a call
    beside the turns may always be done without."""
    if retry > policy.max_retries or failure.code not in policy.retryable_codes:
        return None
    return retry_delay_ms(policy, retry, failure.provider_retry_after_ms, rng)
