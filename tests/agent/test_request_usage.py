"""`request/usage`: what each attempt of a step used and cost, at the price it was made for."""

from typing import Any

import msgspec
import pytest

from dsh.agent.contract import AGENT_REQUEST_ERROR
from dsh.llm.adapter import ModelInfo
from dsh.session.chunk import Finish, TextDelta, UsageChunk
from dsh.session.projection.price import Price
from dsh.session.projection.requests import requests
from dsh.session.projection.stats import STATS, view
from dsh.session.projection.unit import fold
from dsh.session.verify.log import verify
from tests.agent.kit import Item, Loop, calls, data_of, loop, short, text, thought
from tests.aio import aio

PRICE = Price(input=2.0, output=8.0, cache_read=0.5)
USED = {"inputTokens": 30, "outputTokens": 20, "cacheReadTokens": 10}
COST = pytest.approx(225e-6, abs=1e-12)  # 30 x $2 + 10 x $0.50 + 20 x $8, per million


def used(reply: list[Item]) -> list[Item]:
    """The reply with a report of usage before its finish."""
    return [*reply[:-1], UsageChunk(dict(USED)), reply[-1]]


def broken(code: str = "SERVER") -> list[Item]:
    failure = {"message": "it broke", "code": code}
    return [UsageChunk(dict(USED)), Finish({"kind": "error", "failure": failure})]


def priced(it: Loop, *prices: Price | None) -> None:
    """Give the model a price, another one with each request."""
    left, resolve = list(prices), it.model.resolve_model

    def resolve_model(provider: str, model: str) -> ModelInfo:
        price = left.pop(0) if len(left) > 1 else left[0]
        return msgspec.structs.replace(resolve(provider, model), price=price)

    it.model.resolve_model = resolve_model  # type: ignore[method-assign]


def again(it: Loop) -> None:
    """Repeat what failed."""

    async def repeat(payload: Any, following: Any) -> Any:
        return {"kind": "retry"}

    it.ctx.on(AGENT_REQUEST_ERROR, repeat)


def rows(it: Loop, session: Any) -> list[Any]:
    return data_of(session, "request/usage")


@aio
async def test_a_request_leaves_a_row_before_its_message_with_tokens_price_and_cost() -> None:
    async with loop(used(text("hi"))) as it:
        priced(it, PRICE)
        agent = await it.agent()
        await it.prompt(agent, "go")

        [row] = rows(it, agent.session)
        assert row == {
            "turn": 1, "step": 1, "attempt": 1, "provider": "p", "model": "m", "usage": USED,
            "costUsd": COST, "price": {"input": 2.0, "output": 8.0, "cacheRead": 0.5},
        }  # fmt: skip
        assert list(row)[:3] == ["turn", "step", "attempt"]
        event = agent.session.last("request/usage")
        assert event is not None and event.ignorable
        assert "chunks request/usage assistant/message" in short(agent.session)
        assert verify(agent.session).findings == ()


@aio
async def test_without_a_price_the_row_says_so() -> None:
    async with loop(used(text("hi"))) as it:
        agent = await it.agent()
        await it.prompt(agent, "go")

        [row] = rows(it, agent.session)
        assert (row["costUsd"], row["price"]) == (None, None)


@aio
async def test_a_provider_that_reports_no_usage_leaves_no_row() -> None:
    async with loop(text("hi")) as it:
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert rows(it, agent.session) == []


@aio
async def test_failed_attempts_have_rows_and_are_numbered() -> None:
    async with loop(broken(), broken(), used(text("hi"))) as it:
        priced(it, PRICE)
        again(it)
        agent = await it.agent()
        await it.prompt(agent, "go")

        found = rows(it, agent.session)
        assert [(row["attempt"], row["costUsd"]) for row in found] == [(1, COST), (2, COST), (3, COST)]
        digests = data_of(agent.session, "request/digest")
        assert [row["attempt"] for row in digests] == [1, 2, 3], "each has the number of its request"


@aio
async def test_the_attempt_that_ends_the_turn_has_a_row_too() -> None:
    async with loop(broken("AUTH")) as it:
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert len(rows(it, agent.session)) == 1


@aio
async def test_each_request_has_the_price_it_was_made_for() -> None:
    """A price that changes between two steps changes nothing of the first."""
    async with loop(used(calls(("c1", "look", "{}"))), used(text("hi"))) as it:
        priced(it, PRICE, Price(input=0, output=1))

        async def body(args: Any, execution: Any) -> str:
            return "seen"

        it.tool("look", body)
        agent = await it.agent()
        await it.prompt(agent, "go")

        found = rows(it, agent.session)
        assert [row["step"] for row in found] == [1, 2]
        assert [row["costUsd"] for row in found] == [COST, pytest.approx(20e-6, abs=1e-12)]
        figures = view(fold(STATS, agent.session.entries()))
        assert figures["costUsd"] == pytest.approx(245e-6, abs=1e-12)


@aio
async def test_what_a_cancelled_reply_had_reported_is_kept_and_counts_once() -> None:
    async with loop() as it:
        agent = await it.agent()
        it.model.replies = [
            [
                *thought("hm"),
                UsageChunk(dict(USED)),
                lambda: agent.cancel({"kind": "user"}),
                TextDelta(1, "x"),
            ]
        ]
        await it.prompt(agent, "go")

        assert len(rows(it, agent.session)) == 1
        [once] = requests(agent.session.entries())
        assert once.tokens.input == 30
        assert fold(STATS, agent.session.entries()).tokens["p/m"].input == 30
