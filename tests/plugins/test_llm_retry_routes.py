"""Retries where the route changes on the way: a budget for each route, a count for each policy."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from types import ModuleType
from typing import Any

import msgspec

from dsh.agent.contract import AGENT_REQUEST, RequestSeed
from dsh.llm.adapter import RetryPolicy
from dsh.llm.request import LlmCallConfig
from dsh.plugins import llm_retry
from tests.agent.kit import Loop, ScriptedModel, data_of, ends, failed, loop, text
from tests.aio import aio_in_virtual_time

ROW: list[tuple[ModuleType, Mapping[str, Any]]] = [(llm_retry, {})]


class Failing(ScriptedModel):
    """A model with a retry policy of its own; it fails for ever unless it is given replies."""

    def __init__(self, *replies: object, policy: RetryPolicy) -> None:
        super().__init__(*(replies or (failed("SERVER"),)))  # type: ignore[arg-type]
        self.policy = policy

    def retry_policy(self, provider: str) -> RetryPolicy:
        return self.policy


def switching(it: Loop, *routes: str) -> None:
    """Attempt n goes to route n, and round again."""
    count = itertools.count()

    async def choose(seed: RequestSeed, following: Callable[[], Awaitable[LlmCallConfig]]) -> LlmCallConfig:
        config = await following()
        return msgspec.structs.replace(config, provider=routes[next(count) % len(routes)])

    it.ctx.on(AGENT_REQUEST, choose)


def chains(it: Loop) -> list[tuple[str, int]]:
    return [(row["provider"], row["retry"]) for row in data_of(it.sessions.list()[0], "llm/retry")]


@aio_in_virtual_time
async def test_each_route_has_its_own_budget_in_one_step() -> None:
    async with loop(rows=ROW) as it:
        p, q = Failing(policy=RetryPolicy(max_retries=2)), Failing(policy=RetryPolicy(max_retries=3))
        it.llm.register_adapter(["a"], p)
        it.llm.register_adapter(["b"], q)
        switching(it, "a", "b")
        agent = await it.agent()
        await it.prompt(agent, "go")

        assert chains(it) == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]
        assert (len(p.requests), len(q.requests)) == (3, 2)
        rows = data_of(agent.session, "llm/retry")
        assert len({row["retryId"] for row in rows}) == 2
        assert [row["maxRetries"] for row in rows] == [2, 3, 2, 3]
        assert ends(agent.session)[0]["error"]["code"] == "SERVER"


@aio_in_virtual_time
async def test_two_routes_of_one_adapter_count_apart() -> None:
    async with loop(rows=ROW) as it:
        model = Failing(policy=RetryPolicy(max_retries=1))
        it.llm.register_adapter(["a", "b", "c"], model)
        switching(it, "a", "b", "c")
        await it.prompt(await it.agent(), "go")

        assert chains(it) == [("a", 1), ("b", 1), ("c", 1)]
        assert len(model.requests) == 4


@aio_in_virtual_time
async def test_a_policy_that_changes_on_the_way_counts_anew() -> None:
    async with loop(rows=ROW) as it:
        model = Failing(policy=RetryPolicy(max_retries=2))
        handle = it.llm.register_adapter(["a"], model)
        switching(it, "a")

        def change() -> None:
            model.policy = RetryPolicy(max_retries=1)
            handle.replace(["a"])

        it.when("llm/retry", lambda _: it.soon(change))
        agent = await it.agent()
        await it.prompt(agent, "go")

        rows = data_of(agent.session, "llm/retry")
        assert [(row["retry"], row["maxRetries"]) for row in rows] == [(1, 2), (1, 1)]
        assert len({row["retryId"] for row in rows}) == 2


@aio_in_virtual_time
async def test_the_policy_of_a_failure_outlives_its_route() -> None:
    async with loop(rows=ROW) as it:
        gone: list[Callable[[], None]] = []
        model = Failing([lambda: gone[0](), *failed("SERVER")], policy=RetryPolicy())
        gone.append(it.llm.register_adapter(["a"], model).dispose)
        switching(it, "a")
        agent = await it.agent()
        await it.prompt(agent, "go")

        assert chains(it) == [("a", 1)], "what was under way is tried again by its own policy"
        assert len(model.requests) == 1
        assert ends(agent.session)[0]["error"]["code"] == "NO_ADAPTER", "and then nobody serves the route"


@aio_in_virtual_time
async def test_a_step_that_succeeded_leaves_nothing_to_the_next() -> None:
    async with loop(rows=ROW) as it:
        replies = [failed("SERVER"), text("one"), failed("SERVER"), failed("SERVER"), text("two")]
        model = Failing(*replies, policy=RetryPolicy(max_retries=2))
        it.llm.register_adapter(["a"], model)
        switching(it, "a")
        agent = await it.agent()
        await it.prompt(agent, "go")
        await it.prompt(agent, "on")

        assert chains(it) == [("a", 1), ("a", 1), ("a", 2)]
        assert [end["kind"] for end in ends(agent.session)] == ["completed", "completed"]
        assert len({row["retryId"] for row in data_of(agent.session, "llm/retry")}) == 2


@aio_in_virtual_time
async def test_a_thousand_retries_are_one_chain() -> None:
    async with loop(rows=ROW) as it:
        policy = RetryPolicy(mode="always", initial_delay_ms=1, max_delay_ms=1, jitter_ratio=0)
        model = Failing(*[failed("AUTH")] * 1000, text("at last"), policy=policy)
        it.llm.register_adapter(["a"], model)
        switching(it, "a")
        agent = await it.agent()
        await it.prompt(agent, "go")

        rows = data_of(agent.session, "llm/retry")
        assert [row["retry"] for row in rows] == list(range(1, 1001))
        assert len({row["retryId"] for row in rows}) == 1
        assert asyncio.get_running_loop().time() > 0.9
        assert ends(agent.session) == [{"kind": "completed"}]
