"""Row `repeat-tool-reminder`: a model that makes one call again and again is told, refused, and stopped."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from dsh.agent.contract import Agent
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.plugins import repeat_tool_reminder
from dsh.plugins.repeat_tool_reminder import NUDGE
from dsh.session.message import user_message
from dsh.tools.event import (
    TOOLS_POST_EXECUTE,
    TOOLS_PRE_EXECUTE,
    Accept,
    Deny,
    PostDecision,
    PreDecision,
    Settled,
)
from dsh.tools.execution import ToolCall, ToolExecution
from tests.agent.kit import Loop, Reply, calls, data_of, ends, loop, text
from tests.aio import aio

PARAMETERS: dict[str, Any] = {"parameters": {"a": {"type": "json"}, "b": {"type": "json"}}}


def reminding(*replies: Reply, **config: Any) -> Any:
    return loop(*replies, rows=[(repeat_tool_reminder, config)])


def same(times: int, *, name: str = "t", raw: str = "{}") -> list[Reply]:
    """Steps that each make the same call."""
    return [calls((f"c{n}", name, raw)) for n in range(times)]


def prepared(it: Loop, *names: str, **options: Any) -> list[str]:
    """Register tools; the answer is the list of those whose bodies ran."""
    ran: list[str] = []
    for name in names or ("t",):

        async def body(_: Any, execution: ToolExecution) -> str:
            ran.append(execution.name)
            return "ok"

        it.tool(name, body, **{**PARAMETERS, **options})
    return ran


def reminders(agent: Agent) -> list[tuple[str, str]]:
    """Summary and text of what the model was told."""
    found = []
    for data in data_of(agent.session, "user/message"):
        source = data["source"]
        if source.get("plugin") == "repeat-tool-reminder":
            assert source["form"] == "notice"
            found.append((source["summary"], data["content"][0]["text"]))
    return found


def summaries(agent: Agent) -> list[str]:
    return [summary for summary, _ in reminders(agent)]


def results(agent: Agent) -> list[str]:
    found = data_of(agent.session, "tool/result")
    return [data["message"]["content"][0]["content"][0]["text"] for data in found]


async def prompted(it: Loop) -> Agent:
    agent = await it.agent()
    await it.prompt(agent, "go")
    return agent


@aio
async def test_the_model_is_reminded_at_three_five_and_eight_and_never_again() -> None:
    async with reminding(*same(12), text("done")) as it:
        ran = prepared(it)
        agent = await prompted(it)

        assert summaries(agent) == ["t × 3", "t × 5", "t × 8"]
        assert len(ran) == 12
        first, second, _ = [told for _, told in reminders(agent)]
        assert first == NUDGE
        assert "`t` was called 5 times in a row" in second


@aio
async def test_a_reminder_stands_before_the_next_request_and_before_what_else_the_call_gave() -> None:
    async with reminding(*same(2), text("done"), thresholds=[2]) as it:

        async def body(_: Any, execution: ToolExecution) -> str:
            return "ok"

        async def told(_: Settled, following: Callable[[], Awaitable[PostDecision]]) -> PostDecision:
            await following()
            return Accept(additional_contexts=(user_message("context", {"kind": "plugin", "plugin": "x"}),))

        it.tool("t", body, **PARAMETERS)
        it.ctx.on(TOOLS_POST_EXECUTE, told)
        await prompted(it)

        last = it.model.requests[-1].messages
        assert [message["content"][0]["text"] for message in last[-2:]] == [NUDGE, "context"]


@aio
async def test_another_call_begins_anew() -> None:
    raws = ["{}", "{}", '{"a":1}', "{}", "{}", "{}"]
    async with reminding(*(calls((f"c{n}", "t", raw)) for n, raw in enumerate(raws)), text("done")) as it:
        prepared(it)
        assert summaries(await prompted(it)) == ["t × 3"]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ('{"a":1,"b":{"x":1,"y":2}}', '{"b":{"y":2,"x":1},"a":1.0}', True),
        ('{"a":1}', '{"a":true}', False),
        ('{"a":[1,2]}', '{"a":[2,1]}', False),
        ('{"a":"1"}', '{"a":1}', False),
        ('{"a":null}', "{}", False),
        ("{broken", "{broken", True),
        ("{broken", "{broken ", False),
    ],
)
@aio
async def test_calls_are_equal_when_their_arguments_are_whatever_the_order_of_keys(
    one: str, other: str, is_same: bool
) -> None:
    async with reminding(calls(("c1", "t", one)), calls(("c2", "t", other)), text("x"), thresholds=[2]) as it:
        prepared(it)
        assert summaries(await prompted(it)) == (["t × 2"] if is_same else [])


@aio
async def test_tools_that_are_not_watched_neither_count_nor_break_a_row() -> None:
    names = ["t", "poll_a", "t", "poll_a", "poll_a", "poll_a", "t"]
    replies = [calls((f"c{n}", name, "{}")) for n, name in enumerate(names)]
    async with reminding(*replies, text("done"), exclude=["poll*"]) as it:
        prepared(it, "t", "poll_a")
        assert summaries(await prompted(it)) == ["t × 3"]


@pytest.mark.parametrize(
    ("include", "exclude", "is_watched"),
    [
        ([], [], True),
        (["t"], [], True),
        (["t*"], ["*"], False),
        (["x"], [], False),
        (["*t"], ["t?", "[t]"], True),
        (["a", "t"], [], True),
        ([], ["t"], False),
    ],
)
@aio
async def test_patterns_know_only_the_star(include: list[str], exclude: list[str], is_watched: bool) -> None:
    async with reminding(*same(3), text("done"), include=include, exclude=exclude) as it:
        prepared(it)
        assert bool(summaries(await prompted(it))) is is_watched


@aio
async def test_the_star_stands_for_any_character_that_a_model_may_put_into_a_name() -> None:
    async with reminding(*same(3, name="no\nsuch"), text("done")) as it:
        assert len(summaries(await prompted(it))) == 1


@aio
async def test_calls_that_a_tool_makes_are_not_the_models() -> None:
    async with reminding(calls(("c1", "outer", "{}")), text("done"), thresholds=[2], blockAt=3) as it:
        ran = prepared(it, "t")

        async def outer(_: Any, execution: ToolExecution) -> str:
            for n in range(5):
                inner = ToolCall(
                    call_id=f"n{n}", name="t", arguments={}, agent=execution.agent, parent=execution.token
                )
                await it.tools.run(inner)
            return "ok"

        it.tool("outer", outer)
        agent = await prompted(it)

        assert (len(ran), summaries(agent)) == (5, [])


@aio
async def test_a_persons_message_begins_anew_and_one_of_a_row_does_not() -> None:
    for kind, told in (("user", []), ("plugin", ["t × 3"])):
        async with reminding(*same(2), text("one"), *same(2), text("two")) as it:
            prepared(it)
            agent = await prompted(it)
            source = {"kind": kind} if kind == "user" else {"kind": kind, "plugin": "x"}
            agent.followup(user_message("more", source))
            await agent.when_idle()
            assert summaries(agent) == told


@aio
async def test_calls_that_policies_deny_and_calls_of_unknown_tools_count() -> None:
    async def deny(_: ToolExecution, __: Callable[[], Awaitable[PreDecision]]) -> PreDecision:
        return Deny("no")

    async with reminding(*same(3), text("done")) as it:
        prepared(it)
        it.ctx.on(TOOLS_PRE_EXECUTE, deny)
        assert summaries(await prompted(it)) == ["t × 3"]

    async with reminding(*same(3, name="nothing"), text("done")) as it:
        assert summaries(await prompted(it)) == ["nothing × 3"]


@aio
async def test_each_agent_has_its_own_row() -> None:
    async with reminding(*(reply for n in range(2) for reply in same(2)), text("done")) as it:
        prepared(it)
        one, two = await it.agent(), await it.agent()
        one.followup(user_message("go"))
        two.followup(user_message("go"))
        await one.when_idle()
        await two.when_idle()
        assert (summaries(one), summaries(two)) == ([], [])


@pytest.mark.parametrize("is_safe", [False, True])
@aio
async def test_six_equal_calls_at_once_are_told_of_twice_before_the_next_step(is_safe: bool) -> None:
    batch = calls(*((f"c{n}", "t", "{}") for n in range(6)))
    async with reminding(batch, text("done")) as it:
        prepared(it, concurrency_safe=is_safe)
        agent = await prompted(it)

        assert summaries(agent) == ["t × 3", "t × 5"]
        queued = [
            (event.type, len(event.data.get("inserted", ())))
            for event in agent.session.events()
            if event.type in ("tool/result", "agent/inbox/spliced")
        ][2:]
        one, told = ("tool/result", 0), ("agent/inbox/spliced", 1)
        assert queued == [one, one, one, told, one, one, told, one, ("agent/inbox/spliced", 0)]


@aio
async def test_a_long_argument_is_cut_and_the_missing_characters_are_counted() -> None:
    raw = json.dumps({"a": "漢" * 50}, ensure_ascii=False)
    async with reminding(*same(3, raw=raw), text("x"), thresholds=[2, 3], argumentsPreviewChars=10) as it:
        prepared(it)
        _, told = reminders(await prompted(it))[1]
        assert '{"a":"漢漢漢漢… (48 more characters)\n' in told


@aio
async def test_an_argument_of_just_the_length_is_shown_whole() -> None:
    async with reminding(
        *same(3, raw='{"a":12}'), text("x"), thresholds=[2, 3], argumentsPreviewChars=8
    ) as it:
        prepared(it)
        assert 'arguments: {"a":12}\n' in reminders(await prompted(it))[1][1]


@aio
async def test_raw_arguments_that_are_no_json_are_shown_as_they_are() -> None:
    async with reminding(*same(3, raw="{'a'"), text("x"), thresholds=[2, 3]) as it:
        prepared(it)
        assert "arguments: {'a'\n" in reminders(await prompted(it))[1][1]


# -- escalation ----------------------------------------------------------------------------------


@aio
async def test_from_a_count_on_each_equal_call_is_refused_and_another_one_runs() -> None:
    replies = [*same(5), calls(("d", "t", '{"a":1}')), *same(1), text("done")]
    async with reminding(*replies, blockAt=4) as it:
        ran = prepared(it)
        agent = await prompted(it)

        assert len(ran) == 5
        said = results(agent)
        assert [line.startswith("Error: refused") for line in said] == [False] * 3 + [True] * 2 + [False] * 2
        assert "made 5 times in a row" in said[4]
        assert ends(agent.session) == [{"kind": "completed"}]


@aio
async def test_calls_made_at_once_are_refused_from_the_count_on_although_none_has_run() -> None:
    gate = asyncio.Event()
    started: list[str] = []

    async def body(_: Any, execution: ToolExecution) -> str:
        started.append(execution.call_id)
        if len(started) == 3:
            gate.set()
        await gate.wait()
        return "ok"

    batch = calls(*((f"c{n}", "t", "{}") for n in range(6)))
    async with reminding(batch, text("done"), blockAt=4) as it:
        it.tool("t", body, concurrency_safe=True)
        agent = await prompted(it)

        assert started == ["c0", "c1", "c2"]
        assert [line.startswith("Error: refused") for line in results(agent)] == [False] * 3 + [True] * 3


@aio
async def test_at_a_count_the_turn_is_ended_with_a_logged_reason_and_what_waits_stays() -> None:
    async with reminding(*same(9), blockAt=3, endTurnAt=5) as it:
        ran = prepared(it)
        agent = await it.agent()
        agent.followup(user_message("go"))
        agent.followup(user_message("next"))
        await agent.when_idle()

        assert ends(agent.session)[0] == {
            "kind": "aborted",
            "reason": {"kind": "hook", "reason": "limit:repeat"},
        }
        assert len(ran) == 2
        assert len(results(agent)) == 5
        assert len(data_of(agent.session, "turn/start")) == 1
        assert [message["content"][0]["text"] for message in agent.inbox.next_turn] == ["next"]


@aio
async def test_a_turn_ends_without_a_refusal_before_and_the_agent_goes_on_afterwards() -> None:
    async with reminding(*same(4), *same(2), text("done"), endTurnAt=4) as it:
        ran = prepared(it)
        agent = await prompted(it)
        assert [end["kind"] for end in ends(agent.session)] == ["aborted"]

        agent.inject(user_message("look again", {"kind": "plugin", "plugin": "x"}))
        agent.continue_pending()
        await agent.when_idle()

        assert [end["kind"] for end in ends(agent.session)] == ["aborted", "completed"]
        assert len(ran) == 5


@aio
async def test_the_rest_of_the_message_is_answered_when_the_turn_ends_in_its_midst() -> None:
    batch = calls(*((f"c{n}", "t", "{}") for n in range(6)))
    async with reminding(*same(1), batch, endTurnAt=3) as it:
        ran = prepared(it)
        agent = await prompted(it)

        assert ends(agent.session)[0]["reason"]["reason"] == "limit:repeat"
        assert len(ran) == 2
        assert len(results(agent)) == 7


@pytest.mark.parametrize("block_at", [None, 4])
@aio
async def test_calls_of_a_single_message_are_refused_and_only_one_made_after_it_ends_the_turn(
    block_at: int | None,
) -> None:
    batch = calls(*((f"c{n}", "t", "{}") for n in range(9)))
    for last, end in ((text("I see"), "completed"), (same(1)[0], "aborted")):
        async with reminding(batch, last, text("done"), blockAt=block_at, endTurnAt=5) as it:
            ran = prepared(it)
            agent = await prompted(it)

            assert len(ran) == (block_at or 5) - 1
            assert sum(line.startswith("Error: refused") for line in results(agent)[:9]) == 9 - len(ran)
            assert [found["kind"] for found in ends(agent.session)] == [end]
            assert len(it.model.requests) == 2


@aio
async def test_another_call_in_between_is_answered_before_it_can_end_a_turn() -> None:
    batch = calls(("a", "t", '{"a":1}'), *((f"c{n}", "t", "{}") for n in range(5)))
    async with reminding(calls(("b", "t", '{"a":1}')), batch, text("done"), endTurnAt=4) as it:
        prepared(it)
        assert ends((await prompted(it)).session) == [{"kind": "completed"}]


@aio
async def test_calls_that_an_older_policy_refuses_before_anybody_else_is_asked_end_the_turn_too() -> None:
    async def deny(_: ToolExecution, __: Callable[[], Awaitable[PreDecision]]) -> PreDecision:
        return Deny("no")

    def first(ctx: Context) -> None:
        ctx.on(TOOLS_PRE_EXECUTE, deny)

    async with loop(
        *same(9), text("done"), rows=[(repeat_tool_reminder, {"endTurnAt": 4})], first=first
    ) as it:
        prepared(it)
        agent = await prompted(it)

        assert len(results(agent)) == 4
        assert [end["kind"] for end in ends(agent.session)] == ["aborted"]


@aio
async def test_a_model_that_never_does_anything_else_ends_with_what_base_sets() -> None:
    async with reminding(*same(1), blockAt=20, endTurnAt=30) as it:
        ran = prepared(it)
        agent = await prompted(it)

        assert (len(ran), len(results(agent)), len(it.model.requests)) == (19, 30, 30)
        assert ends(agent.session)[0]["kind"] == "aborted"


@pytest.mark.parametrize(
    "config",
    [
        {"thresholds": [1]},
        {"thresholds": [3, 3]},
        {"thresholds": [5, 3]},
        {"thresholds": [2.5]},
        {"argumentsPreviewChars": 0},
        {"include": [""]},
        {"blockAt": 1},
        {"endTurnAt": 0},
        {"other": 1},
    ],
)
@aio
async def test_wrong_options_are_refused_at_the_load(config: dict[str, Any]) -> None:
    ctx = Context()
    with pytest.raises(CompositionError):
        await ctx.plugin(repeat_tool_reminder, config)
    await ctx.dispose()


@aio
async def test_no_thresholds_remind_of_nothing() -> None:
    async with reminding(*same(9), text("done"), thresholds=[]) as it:
        prepared(it)
        assert summaries(await prompted(it)) == []
