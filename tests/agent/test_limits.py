"""Limits of a turn and of a run: when they act, what they leave in the log, and what waits on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dsh.agent.contract import (
    AGENT_PRE_STEP,
    AGENT_REQUEST_ERROR,
    AGENT_TURN_STOPPING,
    Agent,
    CancelCause,
    EnterStep,
    RejectStep,
    RequestFailed,
    RetryRequest,
    RunLimits,
    TurnStopping,
)
from dsh.agent.limits import TurnBudget, Used, tokens_of
from dsh.agent.prompt import SYSTEM_PROMPT
from dsh.agent.registry import AGENTS
from dsh.capabilities.settings import SETTINGS
from dsh.kernel import CancelToken, Context
from dsh.plugins.settings.document import MemoryStore
from dsh.plugins.settings.service import SettingsService
from dsh.session.chunk import BlockStart, TextDelta, UsageChunk
from dsh.session.message import user_message
from tests.agent.kit import Item, Loop, calls, data_of, ends, failed, loop, short, text, texts_of, until
from tests.aio import aio, aio_in_virtual_time

USER: CancelCause = {"kind": "user"}


def at_limit(name: str) -> dict[str, Any]:
    return {"kind": "aborted", "reason": {"kind": "hook", "reason": f"limit:{name}"}}


def asking(usage: bool = False) -> list[Item]:
    """A reply that calls `echo`; with usage it costs 12 tokens."""
    reply = calls(("c", "echo", "{}"))
    if usage:
        reply.insert(-1, UsageChunk({"inputTokens": 4, "cacheReadTokens": 6, "outputTokens": 2}))
    return reply


async def working(it: Loop, **fields: Any) -> Agent:
    async def echo(args: Any, execution: Any) -> str:
        return "echoed"

    it.tool("echo", echo)
    return await it.agent(**fields)


def waiting(agent: Agent) -> list[str]:
    messages = (*agent.inbox.next_step, *agent.inbox.next_turn)
    return [m["content"][0]["text"] for m in messages]  # type: ignore[typeddict-item]


# -- steps and tokens --------------------------------------------------------------------------------


@aio
async def test_a_turn_may_have_so_many_steps_and_the_next_turn_as_many_again() -> None:
    async with loop(asking(), config={"maxStepsPerTurn": 3}) as it:
        agent = await working(it)
        await it.prompt(agent, "go")
        assert len(it.model.requests) == 3
        assert ends(agent.session) == [at_limit("steps")]
        assert short(agent.session).endswith("tool/call tool/result step/end turn/end")
        await it.prompt(agent, "go on")
        assert len(it.model.requests) == 6
        assert ends(agent.session) == [at_limit("steps")] * 2


@aio
async def test_a_turn_that_is_done_at_its_limit_is_completed() -> None:
    async with loop(asking(), text("done"), config={"maxStepsPerTurn": 2}) as it:
        agent = await working(it)
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]


@aio
async def test_what_waits_at_the_limit_is_not_claimed() -> None:
    async with loop(text("one"), config={"maxStepsPerTurn": 1}) as it:
        agent = await working(it)
        agent.followup(user_message("go"))
        agent.followup(user_message("second"))
        steered = iter([True])

        def steer(stopping: TurnStopping) -> None:
            if next(steered, False):
                agent.steer(user_message("more"))

        it.ctx.on(AGENT_TURN_STOPPING, steer)
        await agent.when_idle()
        assert ends(agent.session) == [at_limit("steps")]
        assert waiting(agent) == ["more", "second"]
        assert it.statuses == ["running", "idle"], "a limit is a cancel: nobody is woken"
        assert agent.continue_pending()
        await agent.when_idle()
        assert texts_of(it.model.requests[-1])[-2:] == ["user: more", "user: second"]
        assert not agent.continue_pending(), "nothing waits any more"


@aio
async def test_tokens_are_those_that_the_provider_reported_cached_ones_too() -> None:
    assert tokens_of({"inputTokens": 1, "cacheReadTokens": 2, "cacheWriteTokens": 4, "outputTokens": 8}) == 15
    assert tokens_of({"inputTokens": "x", "outputTokens": -3}) == 0
    async with loop(asking(usage=True), config={"maxTokensPerTurn": 30}) as it:
        agent = await working(it)
        await it.prompt(agent, "go")
        assert len(it.model.requests) == 3, "12, 24, 36"
        assert ends(agent.session) == [at_limit("tokens")]


@aio
async def test_a_reply_without_usage_costs_nothing() -> None:
    replies = [asking() for _ in range(5)]
    async with loop(*replies, text("done"), config={"maxTokensPerTurn": 1}) as it:
        agent = await working(it)
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]


@aio
async def test_attempts_that_fail_cost_tokens_and_no_steps() -> None:
    broken = [UsageChunk({"inputTokens": 10, "outputTokens": 0}), *failed("SERVER")]
    script = (broken, broken, asking(usage=True), text("never"))
    async with loop(*script, config={"maxTokensPerTurn": 32, "maxStepsPerTurn": 2}) as it:
        agent = await working(it)

        async def retry(payload: RequestFailed, following: Any) -> RetryRequest:
            return {"kind": "retry"}

        it.ctx.on(AGENT_REQUEST_ERROR, retry)
        await it.prompt(agent, "go")
        assert len(it.model.requests) == 3, "10 + 10 + 12 tokens, in one step"
        assert ends(agent.session) == [at_limit("tokens")]


@aio
async def test_the_steps_of_a_run_are_those_of_all_its_turns() -> None:
    async with loop(asking(), text("one"), asking(), text("never")) as it:
        agent = await working(it, limits=RunLimits(steps=3))
        await it.prompt(agent, "first")
        await it.prompt(agent, "second")
        assert ends(agent.session) == [{"kind": "completed"}, at_limit("steps")]
        length = agent.session.length
        await it.prompt(agent, "third")
        assert short(agent.session, length) == "spliced turn/start turn/end", "no step, and no claim"
        assert waiting(agent) == ["third"]
        assert len(it.model.requests) == 3


@aio
async def test_the_tokens_of_a_run_are_those_of_all_its_turns() -> None:
    async with loop(text("done", usage=True)) as it:
        agent = await working(it, limits=RunLimits(tokens=20))
        for _ in range(3):
            await it.prompt(agent, "go")
        assert [end["kind"] for end in ends(agent.session)] == ["completed", "completed", "aborted"]
        assert ends(agent.session)[-1] == at_limit("tokens")


@aio
async def test_an_attempt_that_was_cancelled_has_cost_its_tokens_too() -> None:
    async with loop(text("never")) as it:
        agent = await it.agent(limits=RunLimits(tokens=10))
        used = UsageChunk({"inputTokens": 10, "outputTokens": 2})
        it.model.replies = [[used, lambda: agent.cancel(USER), *text("cut")]]
        await it.prompt(agent, "go")
        await it.prompt(agent, "again")
        assert [end["reason"] for end in ends(agent.session)] == [USER, at_limit("tokens")["reason"]]
        assert len(it.model.requests) == 1


@aio
async def test_the_smaller_limit_acts_whose_ever_it_is() -> None:
    async with loop(asking(), config={"maxStepsPerTurn": 5}) as it:
        agent = await working(it, limits=RunLimits(steps=2))
        await it.prompt(agent, "go")
        assert len(it.model.requests) == 2


@aio
async def test_without_limits_nothing_stops_a_turn() -> None:
    async with loop(*[asking(usage=True)] * 60, text("done")) as it:
        agent = await working(it)
        await it.prompt(agent, "go")
        assert len(data_of(agent.session, "step/start")) == 61
        assert ends(agent.session) == [{"kind": "completed"}]


@aio
async def test_settings_over_the_row_count_from_the_next_turn_on() -> None:
    store = MemoryStore({"agent-loop": {"maxStepsPerTurn": 2}})

    def settings(ctx: Context) -> None:
        SettingsService(ctx, store)

    async with loop(asking(), config={"maxStepsPerTurn": 4}) as it:
        agent = await working(it)
        await it.prompt(agent, "go")
        assert len(it.model.requests) == 4
        await it.ctx.plugin(settings)
        await until(lambda: it.ctx.has(SETTINGS))
        await asyncio.sleep(0.01)
        await it.prompt(agent, "go")
        assert len(it.model.requests) == 6


# -- time --------------------------------------------------------------------------------------------


def in_stream(it: Loop) -> None:
    it.model.replies = [[BlockStart(0, "text"), TextDelta(0, "half"), lambda: asyncio.sleep(60)]]


def in_tool(it: Loop) -> None:
    async def slow(args: Any, execution: Any) -> str:
        await execution.signal.sleep(60)
        return "never"

    it.tool("slow", slow)
    it.model.replies = [calls(("c1", "slow", "{}"), ("c2", "slow", "{}"))]


def in_pre_step(it: Loop) -> None:
    async def slow(payload: Any, following: Callable[[], Awaitable[Any]]) -> Any:
        await payload.signal.sleep(60)
        return await following()

    it.ctx.on(AGENT_PRE_STEP, slow)


def in_assembly(it: Loop) -> None:
    async def slow(at: Any, following: Callable[[], Awaitable[Any]]) -> Any:
        await asyncio.sleep(2)
        return await following()

    it.ctx.on("system-prompt/assemble", slow)


@pytest.mark.parametrize(
    ("where", "rows", "waits"),
    [
        (in_stream, "chunks assistant/message step/end turn/end", []),
        (in_tool, "tool/call tool/result tool/call tool/result step/end turn/end", []),
        (in_pre_step, "turn/start spliced spliced turn/end", ["go"]),
        (in_assembly, "turn/start spliced spliced turn/end", ["go"]),
    ],
)
@aio_in_virtual_time
async def test_time_cancels_at_once_wherever_the_turn_is(
    where: Callable[[Loop], None], rows: str, waits: list[str]
) -> None:
    async with loop(text("done"), config={"maxTurnMs": 1500}) as it:
        agent = await it.agent()
        where(it)
        begun = asyncio.get_running_loop().time()
        await it.prompt(agent, "go")
        assert asyncio.get_running_loop().time() - begun < 10
        assert short(agent.session).endswith(rows)
        assert ends(agent.session) == [at_limit("timeout")]
        assert waiting(agent) == waits


@aio_in_virtual_time
async def test_a_turn_that_is_over_is_not_stopped_and_neither_is_the_one_after_it() -> None:
    lag: list[Item] = [lambda: asyncio.sleep(1), *text("done")]
    async with loop(lag, config={"maxTurnMs": 1500}) as it:
        agent = await it.agent()
        for _ in range(3):
            agent.followup(user_message("go"))
        await agent.when_idle()
        await asyncio.sleep(30)
        assert ends(agent.session) == [{"kind": "completed"}] * 3
        assert agent.status == "idle"


@aio_in_virtual_time
async def test_the_time_of_a_run_is_that_of_its_turns_and_not_of_the_waiting_between() -> None:
    lag: list[Item] = [lambda: asyncio.sleep(1), *text("done")]
    async with loop(lag) as it:
        agent = await it.agent(limits=RunLimits(duration_ms=2500))
        for _ in range(2):
            await it.prompt(agent, "go")
            await asyncio.sleep(100)
        await it.prompt(agent, "third")
        assert [end["kind"] for end in ends(agent.session)] == ["completed", "completed", "aborted"]
        length = agent.session.length
        await it.prompt(agent, "fourth")
        assert short(agent.session, length) == "spliced turn/start turn/end", "no time is left"
        assert ends(agent.session)[2:] == [at_limit("timeout")] * 2
        assert waiting(agent) == ["fourth"]


@pytest.mark.parametrize(("user_s", "cause"), [(1, USER), (2, at_limit("timeout")["reason"])])
@aio_in_virtual_time
async def test_the_first_cause_wins(user_s: float, cause: Any) -> None:
    async with loop([lambda: asyncio.sleep(3), *text("never")], config={"maxTurnMs": 1500}) as it:
        agent = await it.agent()
        asyncio.get_running_loop().call_later(user_s, lambda: agent.cancel(USER, keep_inbox=True))
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "aborted", "reason": cause}]


@aio_in_virtual_time
async def test_maintenance_has_no_limit_of_a_turn() -> None:
    async with loop(text("done"), config={"maxTurnMs": 10}) as it:
        agent = await it.agent(limits=RunLimits(duration_ms=10, steps=1))

        async def job(token: CancelToken) -> str:
            await token.sleep(5)
            return "done"

        assert await agent.run_maintenance(job) == "done"
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]


@aio
async def test_a_budget_that_has_ended_stops_nothing() -> None:
    stopped: list[CancelCause] = []
    budget = TurnBudget(Used(RunLimits(duration_ms=1)), RunLimits(), stopped.append)
    budget.end()
    budget.begin()
    budget.end()
    budget.end()
    await asyncio.sleep(0.005)
    assert stopped == []


# -- what follows a turn that failed -------------------------------------------------------------------


def fails(it: Loop) -> None:
    it.model.replies = [failed("SERVER"), text("done")]


def is_blocked(it: Loop) -> None:
    rejected = iter([True])

    async def reject(payload: Any, following: Callable[[], Awaitable[Any]]) -> Any:
        return RejectStep() if next(rejected, False) else await following()

    it.ctx.on(AGENT_PRE_STEP, reject)


def is_emptied(it: Loop) -> None:
    emptied = iter([True])

    async def empty(payload: Any, following: Callable[[], Awaitable[Any]]) -> Any:
        return EnterStep(()) if next(emptied, False) else await following()

    it.ctx.on(AGENT_PRE_STEP, empty)


def is_cut_off(it: Loop) -> None:
    it.model.replies = [text("cut", finish="max-tokens"), text("done")]


def is_cancelled(it: Loop) -> None:
    (agent,) = it.ctx.use(AGENTS).list()
    it.model.replies = [[lambda: agent.cancel(USER, keep_inbox=True), *text("x")], text("done")]


def cannot_assemble(it: Loop) -> None:
    it.ctx.use(SYSTEM_PROMPT).section("x", 1, "{{nothing}}")


@pytest.mark.parametrize(
    ("what", "continued", "parked"),
    [
        (fails, ["error", "completed"], ["error"]),
        (is_blocked, ["blocked", "completed"], ["blocked"]),
        (is_emptied, ["completed", "completed"], ["completed"]),
        (is_cut_off, ["max-tokens", "completed"], ["max-tokens", "completed"]),
        (is_cancelled, ["aborted"], ["aborted"]),
        (cannot_assemble, ["error"], ["error"]),
    ],
)
@pytest.mark.parametrize("policy", ["continue", "park", None])
@aio
async def test_prompts_behind_a_turn_that_failed(
    what: Callable[[Loop], None], continued: list[str], parked: list[str], policy: str | None
) -> None:
    async with loop(config={} if policy is None else {"onTurnFailure": policy}) as it:
        agent = await it.agent()
        what(it)
        agent.followup(user_message("a"))
        agent.followup(user_message("b"))
        await agent.when_idle()
        kinds = [end["kind"] for end in ends(agent.session)]
        assert kinds == (continued if policy == "continue" else parked)
        assert it.statuses == ["running", "idle"], "the same driver goes on"


@aio
async def test_a_prompt_that_was_put_back_is_not_tried_again_by_itself() -> None:
    async with loop(config={"onTurnFailure": "continue"}) as it:
        agent = await it.agent()
        cannot_assemble(it)
        agent.followup(user_message("a"))
        agent.followup(user_message("b"))
        await agent.when_idle()
        assert waiting(agent) == ["a", "b"]
        assert len(ends(agent.session)) == 1


@aio
async def test_steering_that_was_put_back_does_not_hold_the_next_prompt_up() -> None:
    async with loop(asking(), text("done"), config={"onTurnFailure": "continue"}) as it:
        agent = await working(it)
        failing = iter([False, True])

        async def second_fails(payload: Any, following: Callable[[], Awaitable[Any]]) -> Any:
            if next(failing, False):
                raise RuntimeError("boom")
            return await following()

        it.ctx.on(AGENT_PRE_STEP, second_fails)
        it.when("tool/call", lambda s: it.soon(lambda: agent.steer(user_message("note"))))
        agent.followup(user_message("a"))
        agent.followup(user_message("b"))
        await agent.when_idle()
        assert [end["kind"] for end in ends(agent.session)] == ["error", "completed"]
        assert texts_of(it.model.requests[-1])[-2:] == ["user: note", "user: b"]


@aio
async def test_a_turn_that_could_not_begin_is_not_tried_again_by_itself() -> None:
    async with loop(config={"onTurnFailure": "continue"}) as it:
        agent = await it.agent()
        agent.session.append("turn/start", {"turn": 1})
        await it.prompt(agent, "go")
        assert short(agent.session) == "turn/start spliced"
        assert waiting(agent) == ["go"]
