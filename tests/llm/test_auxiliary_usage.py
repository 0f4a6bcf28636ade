"""Calls beside the turns leave what they used in the log of their session."""

import random
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from dsh.llm.adapter import ModelInfo
from dsh.llm.auxiliary import ask
from dsh.llm.registry import LLM_STREAM
from dsh.llm.request import LlmRequest
from dsh.llm.stream import close_stream
from dsh.session.chunk import Chunk, Finish, UsageChunk
from dsh.session.log import Session
from dsh.session.projection.price import Price
from tests.aio import aio
from tests.llm.test_auxiliary import Model, Waits, failing, registry, request, said
from tests.session.build import header


class Priced(Model):
    """A model whose tokens cost a dollar each million."""

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return ModelInfo(provider=provider, id=model, name=model, price=Price(input=1, output=1))


async def logged(*replies: list[Any]) -> list[Any]:
    log = Session(header())
    await ask(registry(Priced(*replies)), request(), log=log, pause=Waits(), rng=random.Random(0))
    return [(event.type, event.ignorable, event.data) for event in log.events()]


@aio
async def test_a_call_leaves_a_row_with_its_purpose() -> None:
    [(kind, is_ignorable, data)] = await logged(said("yes"))

    assert (kind, is_ignorable) == ("request/usage", True)
    assert data == {
        "purpose": "compaction", "provider": "p", "model": "m",
        "usage": {"inputTokens": 3, "outputTokens": 1}, "costUsd": 4e-6,
        "price": {"input": 1.0, "output": 1.0},
    }  # fmt: skip


@aio
async def test_an_attempt_that_failed_is_paid_for_too() -> None:
    usage = UsageChunk({"inputTokens": 9, "outputTokens": 0})
    failure = {"kind": "error", "failure": {"message": "busy", "code": "SERVER"}}

    rows = await logged([usage, Finish(failure)], failing("SERVER"), said("yes"))

    assert [data["usage"]["inputTokens"] for _, _, data in rows] == [9, 3]


@aio
async def test_what_was_used_until_a_listener_failed_is_paid_for() -> None:
    llm, log = registry(Priced(said("yes"))), Session(header())

    def limit(given: LlmRequest, following: Any) -> AsyncIterator[Chunk]:
        async def limited() -> AsyncIterator[Chunk]:
            chunks = following()
            try:
                async for chunk in chunks:
                    yield chunk
                    if isinstance(chunk, UsageChunk):
                        raise PermissionError("that is enough")
            finally:
                await close_stream(chunks)

        return limited()

    llm.owner_ctx.on(LLM_STREAM, limit)
    with pytest.raises(PermissionError, match="that is enough"):
        await ask(llm, request(), log=log)

    assert [event.data["costUsd"] for event in log.events()] == [4e-6]


@aio
async def test_a_call_that_names_no_purpose_has_one_of_its_own_in_the_log() -> None:
    log = Session(header())
    await ask(
        registry(Priced(said("yes"))),
        msgspec.structs.replace(request(), purpose=None),
        log=log,
        pause=Waits(),
    )
    assert [event.data["purpose"] for event in log.events()] == ["other"]


@aio
async def test_without_a_log_nothing_is_written() -> None:
    answer = await ask(registry(Priced(said("yes"))), request())
    assert answer.usage == {"inputTokens": 3, "outputTokens": 1}
