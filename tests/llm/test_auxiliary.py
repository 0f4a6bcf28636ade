"""Calls beside the turns: read to their end, retried by the route's policy, ended by their signal."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from dsh.errors import KernelError
from dsh.kernel import Cancelled, CancelToken, Context
from dsh.llm.adapter import LlmAdapter, ModelInfo, RetryPolicy
from dsh.llm.auxiliary import Answer, ask
from dsh.llm.failure import LlmError
from dsh.llm.registry import LLM_STREAM, LlmRegistry
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.session.chunk import BlockEnd, BlockStart, Chunk, Finish, TextDelta, UsageChunk
from dsh.session.message import user_message
from tests.aio import aio, aio_in_virtual_time

POLICY = RetryPolicy(max_retries=2, initial_delay_ms=100, max_delay_ms=1000, jitter_ratio=0)


def said(words: str) -> list[Any]:
    block = {"type": "text", "text": words}
    return [
        BlockStart(0, "text"),
        TextDelta(0, words),
        BlockEnd(0, block),
        UsageChunk({"inputTokens": 3, "outputTokens": 1}),
        Finish({"kind": "stop"}),
    ]


def failing(code: str, **facts: Any) -> list[Any]:
    kind = "aborted" if code == "ABORTED" else "error"
    return [Finish({"kind": kind, "failure": {"message": f"it is {code}", "code": code, **facts}})]


class Model(LlmAdapter):
    """Plays one reply a request, the last one for ever."""

    def __init__(self, *replies: Sequence[Any], policy: RetryPolicy = POLICY) -> None:
        self.replies, self.policy = replies, policy
        self.requests: list[LlmRequest] = []
        self.closed = 0

    def retry_policy(self, provider: str) -> RetryPolicy:
        return self.policy

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return ModelInfo(provider=provider, id=model, name=model, default_max_tokens=100)

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        number = len(self.requests)
        self.requests.append(request)
        try:
            for item in self.replies[min(number, len(self.replies) - 1)]:
                if callable(item):
                    await item()
                elif isinstance(item, BaseException):
                    raise item
                else:
                    yield item
        finally:
            self.closed += 1


class Waits:
    """Counts the waits instead of waiting."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, token: CancelToken, seconds: float) -> None:
        self.seconds.append(seconds)


def request(signal: CancelToken | None = None) -> LlmRequest:
    config = LlmCallConfig(provider="p", model="m")
    return LlmRequest(config=config, messages=(user_message("hi"),), purpose="compaction", signal=signal)


def registry(model: LlmAdapter) -> LlmRegistry:
    llm = LlmRegistry(Context())
    llm.register_adapter(["p"], model)
    return llm


async def asked(model: Model, signal: CancelToken | None = None) -> tuple[Answer, list[float]]:
    waits = Waits()
    answer = await ask(registry(model), request(signal), pause=waits, rng=random.Random(0))
    return answer, waits.seconds


@aio
async def test_the_reply_is_read_to_its_end_with_the_adapters_defaults() -> None:
    model = Model(said("yes"))
    answer, waits = await asked(model)

    assert answer.blocks == ({"type": "text", "text": "yes"},)
    assert (answer.finish, answer.usage) == ("stop", {"inputTokens": 3, "outputTokens": 1})
    assert waits == []
    [sent] = model.requests
    assert (sent.config.max_tokens, sent.purpose) == (100, "compaction")
    assert model.closed == 1


@pytest.mark.parametrize("kind", ["stop", "max-tokens", "tool-calls", "content-filter"])
@aio
async def test_every_finish_that_is_no_failure_is_an_answer(kind: str) -> None:
    answer, _ = await asked(Model([*said("x")[:-1], Finish({"kind": kind})]))
    assert answer.finish == kind


@aio
async def test_what_may_pass_is_asked_again_after_the_policys_waits() -> None:
    model = Model(failing("SERVER"), failing("TRANSPORT"), said("yes"))
    answer, waits = await asked(model)

    assert answer.finish == "stop"
    assert waits == [0.1, 0.2]
    assert (len(model.requests), model.closed) == (3, 3)


@aio
async def test_the_last_failure_is_raised_when_the_retries_are_used_up() -> None:
    model = Model(failing("SERVER"), failing("SERVER"), failing("RATE_LIMIT"))
    with pytest.raises(LlmError) as raised:
        await asked(model)

    assert raised.value.code == "RATE_LIMIT"
    assert len(model.requests) == 3


@pytest.mark.parametrize("code", ["AUTH", "CONTEXT_WINDOW_EXCEEDED", "ABORTED"])
@aio
async def test_what_does_not_pass_is_raised_at_once(code: str) -> None:
    model = Model(failing(code))
    with pytest.raises(LlmError) as raised:
        await asked(model)

    assert (raised.value.code, len(model.requests)) == (code, 1)


@aio
async def test_the_providers_wait_is_kept_exactly_and_one_beyond_the_limit_ends_it() -> None:
    _, waits = await asked(Model(failing("RATE_LIMIT", providerRetryAfterMs=2500), said("yes")))
    assert waits == [2.5]

    model = Model(failing("RATE_LIMIT", providerRetryAfterMs=300_001))
    with pytest.raises(LlmError):
        await asked(model)
    assert len(model.requests) == 1


@aio
async def test_a_policy_without_end_has_one_here() -> None:
    model = Model(failing("SERVER"), policy=msgspec.structs.replace(POLICY, mode="always"))
    with pytest.raises(LlmError):
        await asked(model)
    assert len(model.requests) == 3


@aio
async def test_what_an_adapter_raises_is_a_failure_like_any_other() -> None:
    model = Model([LlmError.of("SERVER", "down")], said("yes"))
    answer, waits = await asked(model)
    assert (answer.finish, len(waits)) == ("stop", 1)

    with pytest.raises(LlmError) as raised:
        await asked(Model([ValueError("bug")]))
    assert raised.value.code == "UNKNOWN"


@aio
async def test_an_unknown_route_and_a_listener_that_raises_reach_the_caller() -> None:
    with pytest.raises(LlmError) as raised:
        await ask(LlmRegistry(Context()), request())
    assert raised.value.code == "NO_ADAPTER"

    def broken(*_: object) -> AsyncIterator[Chunk]:
        raise OSError("disk full")

    llm = registry(Model(said("x")))
    llm.owner_ctx.on(LLM_STREAM, broken)
    with pytest.raises(OSError, match="disk full"):
        await ask(llm, request())


@aio
async def test_a_cancelled_signal_asks_nothing() -> None:
    signal, model = CancelToken(), Model(said("x"))
    signal.cancel("why")
    with pytest.raises(Cancelled) as raised:
        await asked(model, signal)
    assert (raised.value.reason, model.requests) == ("why", [])


@aio
async def test_a_signal_in_the_midst_of_a_reply_ends_it_and_closes_the_stream() -> None:
    signal = CancelToken()

    async def cancel() -> None:
        signal.cancel("why")

    model = Model([*said("x")[:2], cancel, *said("x")[2:]])
    with pytest.raises(Cancelled):
        await asked(model, signal)
    assert model.closed == 1


@aio
async def test_an_adapter_that_goes_on_after_the_signal_is_not_read_to_its_end() -> None:
    signal = CancelToken()
    went_on: list[int] = []

    async def cancel() -> None:
        signal.cancel("why")

    async def goes_on() -> None:
        went_on.append(1)

    first, *rest = said("x")
    with pytest.raises(Cancelled):
        await asked(Model([cancel, first, goes_on, *rest]), signal)
    assert went_on == []


@aio_in_virtual_time
async def test_a_signal_ends_a_wait() -> None:
    signal, model = CancelToken(), Model(failing("RATE_LIMIT", providerRetryAfterMs=200_000))
    asking = asyncio.ensure_future(ask(registry(model), request(signal)))
    await asyncio.sleep(1)
    signal.cancel("why")
    with pytest.raises(Cancelled):
        await asking
    assert len(model.requests) == 1


@aio
async def test_a_cancelled_task_closes_the_stream() -> None:
    model = Model([asyncio.Event().wait])
    asking = asyncio.ensure_future(ask(registry(model), request()))
    while not model.requests:
        await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert model.closed == 1


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
@aio
async def test_an_exit_of_an_adapter_is_a_failure_of_the_call_and_of_nothing_else(
    error: BaseException,
) -> None:
    with pytest.raises(KernelError, match=f"a model call raised {type(error).__name__}"):
        await asyncio.create_task(asked(Model([error])))
