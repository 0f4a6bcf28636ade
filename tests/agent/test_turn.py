"""Turns from prompt to end: the order of rows in the log, the requests, how a turn ends."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from dsh.agent.contract import (
    AGENT_ERROR,
    AGENT_PRE_STEP,
    AGENT_TURN_STOPPING,
    EnterStep,
    PreStep,
    PreStepDecision,
    RejectStep,
    TurnStopping,
)
from dsh.agent.failure import AgentError
from dsh.agent.prompt import SYSTEM_PROMPT
from dsh.errors import CompositionError
from dsh.llm.registry import LLM_STREAM
from dsh.session.chunk import BlockEnd, BlockStart, Finish, TextDelta
from dsh.session.message import user_message
from dsh.session.store import SESSION_CREATED
from dsh.tools.event import TOOLS_POST_EXECUTE, Accept
from tests.agent.kit import Item, Loop, calls, data_of, ends, failed, loop, short, text, texts_of
from tests.aio import aio

OPENING = "spliced turn/start spliced step/start user/message request/header request/context request/digest"
PLAIN = f"{OPENING} chunks assistant/message step/end turn/end"
Next = Callable[[], Awaitable[PreStepDecision]]


async def echo(args: Any, exec: Any) -> str:  # noqa: A002
    return "echoed"


@aio
async def test_one_prompt_writes_the_rows_of_a_turn_in_order() -> None:
    async with loop(text("hello", usage=True)) as it:
        agent = await it.agent()
        await it.prompt(agent, "hi")
        assert short(agent.session) == PLAIN.replace("chunks", "chunks request/usage")
        assert ends(agent.session) == [{"kind": "completed"}]
        assert texts_of(it.model.requests[0]) == ["user: hi"]
        assert it.statuses == ["running", "idle"]


@aio
async def test_a_tool_turn_is_the_example_log_of_the_specification() -> None:
    async with loop(calls(("c1", "echo", "{}")), text("done")) as it:
        it.tool("echo", echo)
        it.ctx.use(SYSTEM_PROMPT).context("a:fact", 1, lambda at: "a fact")
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert short(agent.session) == (
            "spliced turn/start spliced step/start user/message user/message request/header request/context "
            "request/digest chunks assistant/message tool/call tool/result step/end "
            "step/start request/digest chunks assistant/message step/end turn/end"
        )
        log = list(agent.session.events())
        assert [e.data["turn"] for e in log if e.type == "turn/start"] == [1]
        assert [e.data["step"] for e in log if e.type == "step/start"] == [1, 2]
        reply = next(e for e in log if e.type == "assistant/message")
        assert reply.sources is not None
        assert [log[seq].type for seq in reply.sources] == ["assistant/chunk"] * 4
        call = next(e for e in log if e.type == "tool/call")
        result = next(e for e in log if e.type == "tool/result")
        assert result.sources == (call.seq,)
        assert list(call.data) == ["turn", "step", "callId", "name", "arguments"]
        assert list(result.data) == ["turn", "step", "message"]
        assert texts_of(it.model.requests[1])[2:] == ["assistant: call c1", "user: result c1: echoed"]


@aio
async def test_request_n_plus_1_extends_request_n() -> None:
    async with loop(calls(("c1", "echo", "{}")), text("one"), text("two")) as it:
        it.tool("echo", echo)
        agent = await it.agent()
        await it.prompt(agent, "first")
        await it.prompt(agent, "second")
        requests = it.model.requests
        assert len(requests) == 3
        for before, after in pairwise(requests):
            assert after.messages[: len(before.messages)] == before.messages
            assert (after.system, after.tools) == (before.system, before.tools)


@aio
async def test_each_queued_prompt_gets_a_turn_of_its_own_with_a_fresh_step_count() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        for word in ("a", "b", "c"):
            agent.followup(user_message(word))
        await agent.when_idle()
        assert [d["turn"] for d in data_of(agent.session, "turn/start")] == [1, 2, 3]
        assert [d["step"] for d in data_of(agent.session, "step/start")] == [1, 1, 1]
        assert texts_of(it.model.requests[1]) == ["user: a", "assistant: done", "user: b"]
        assert it.statuses == ["running", "idle"]


@aio
async def test_steering_enters_at_the_next_step_of_the_same_turn() -> None:
    async with loop(calls(("c1", "steer", "{}")), text("done")) as it:
        agent = await it.agent()

        async def steer(args: Any, exec: Any) -> str:  # noqa: A002
            agent.steer(user_message("look here"))
            return "ok"

        it.tool("steer", steer)
        await it.prompt(agent, "go")
        assert len(ends(agent.session)) == 1
        assert texts_of(it.model.requests[1])[-2:] == ["user: result c1: ok", "user: look here"]


@aio
async def test_steering_that_arrives_with_the_last_reply_still_gets_a_step() -> None:
    async with loop(text("one"), text("two")) as it:
        agent = await it.agent()
        it.when("assistant/message", lambda s: it.soon(lambda: agent.steer(user_message("more"))))
        it.ctx.on(AGENT_TURN_STOPPING, lambda stopping: it.breath())
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]
        assert [d["step"] for d in data_of(agent.session, "step/start")] == [1, 2]


@aio
async def test_a_turn_stopping_listener_objects_by_steering() -> None:
    async with loop(text("one"), text("two")) as it:
        agent = await it.agent()
        asked = []

        def object_once(stopping: TurnStopping) -> None:
            asked.append(stopping.turn)
            if len(asked) == 1:
                agent.steer(user_message("not yet"))

        it.ctx.on(AGENT_TURN_STOPPING, object_once)
        await it.prompt(agent, "go")
        assert asked == [1, 1]
        assert texts_of(it.model.requests[1])[-1] == "user: not yet"
        assert len(ends(agent.session)) == 1


@aio
async def test_a_raising_turn_stopping_listener_ends_the_turn_as_an_error() -> None:
    async with loop(text("one")) as it:
        agent = await it.agent()

        def fail(stopping: TurnStopping) -> None:
            raise RuntimeError("no end")

        it.ctx.on(AGENT_TURN_STOPPING, fail)
        await it.prompt(agent, "go")
        [end] = ends(agent.session)
        assert end["error"]["code"] == "UNKNOWN"
        assert end["error"]["message"].startswith(f"no end (a listener of agent/turn-stopping, {__file__}:")


@aio
async def test_max_tokens_is_sticky_within_a_turn_and_gone_in_the_next() -> None:
    async with loop(text("cut", finish="max-tokens"), text("two"), text("three")) as it:
        agent = await it.agent()
        steered = iter([True])

        def once(stopping: TurnStopping) -> None:
            if next(steered, False):
                agent.steer(user_message("go on"))

        it.ctx.on(AGENT_TURN_STOPPING, once)
        await it.prompt(agent, "go")
        await it.prompt(agent, "again")
        assert [end["kind"] for end in ends(agent.session)] == ["max-tokens", "completed"]


@aio
async def test_tool_results_after_a_max_tokens_step_are_sent_to_the_model() -> None:
    cut = text("cut", finish="max-tokens")
    async with loop(cut, calls(("c1", "echo", "{}")), text("answer")) as it:
        it.tool("echo", echo)
        agent = await it.agent()
        steered = iter([True])

        def once(stopping: TurnStopping) -> None:
            if next(steered, False):
                agent.steer(user_message("use the tool"))

        it.ctx.on(AGENT_TURN_STOPPING, once)
        await it.prompt(agent, "go")
        assert len(it.model.requests) == 3
        assert ends(agent.session) == [{"kind": "max-tokens"}]


@aio
async def test_calls_of_a_message_that_was_cut_off_never_run() -> None:
    async with loop(calls(("c1", "echo", "{"), finish="max-tokens")) as it:
        it.tool("echo", echo)
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert data_of(agent.session, "tool/call") == []
        assert ends(agent.session) == [{"kind": "max-tokens"}]


@aio
async def test_an_empty_reply_is_logged_and_does_not_reach_the_history() -> None:
    async with loop([*text("")[3:]], text("two")) as it:
        agent = await it.agent()
        await it.prompt(agent, "go")
        await it.prompt(agent, "again")
        assert data_of(agent.session, "assistant/message")[0]["message"]["content"] == ()
        assert texts_of(it.model.requests[1]) == ["user: go", "user: again"]


@aio
async def test_a_concluding_tool_ends_the_turn_without_another_request() -> None:
    async with loop(calls(("c1", "finish", "{}"))) as it:

        async def finish(args: Any, exec: Any) -> str:  # noqa: A002
            exec.conclude_turn()
            return "done"

        it.tool("finish", finish)
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert len(it.model.requests) == 1
        assert ends(agent.session) == [{"kind": "completed"}]


@pytest.mark.parametrize("source", ["context of the tool", "steering"])
@aio
async def test_what_waits_for_a_step_gets_one_even_after_a_concluding_tool(source: str) -> None:
    async with loop(calls(("c1", "finish", "{}")), text("read it")) as it:
        agent = await it.agent()

        async def finish(args: Any, exec: Any) -> str:  # noqa: A002
            exec.conclude_turn()
            if source == "steering":
                agent.steer(user_message("wait"))
            return "done"

        async def add(settled: Any, following: Any) -> Accept:
            note = user_message("wait", {"kind": "plugin", "plugin": "x"})
            return Accept(additional_contexts=(note,))

        it.tool("finish", finish)
        if source != "steering":
            it.ctx.on(TOOLS_POST_EXECUTE, add)
        stopping: list[Any] = []
        it.ctx.on(AGENT_TURN_STOPPING, stopping.append)
        await it.prompt(agent, "go")
        assert texts_of(it.model.requests[1])[-1] == "user: wait"
        assert ends(agent.session) == [{"kind": "completed"}]
        assert len(stopping) == 1, "asked when nothing waits any more, and not before"


@aio
async def test_contexts_of_tools_enter_the_next_step_after_all_results() -> None:
    async with loop(calls(("c1", "echo", "{}"), ("c2", "echo", "{}")), text("done")) as it:
        it.tool("echo", echo, concurrency_safe=True)
        agent = await it.agent()

        async def add(settled: Any, following: Any) -> Accept:
            await following()
            note = user_message(f"about {settled.execution.call_id}", {"kind": "plugin", "plugin": "x"})
            return Accept(additional_contexts=(note,))

        it.ctx.on(TOOLS_POST_EXECUTE, add)
        await it.prompt(agent, "go")
        assert texts_of(it.model.requests[1])[-4:] == [
            "user: result c1: echoed",
            "user: result c2: echoed",
            "user: about c1",
            "user: about c2",
        ]


@aio
async def test_rejecting_the_first_step_blocks_the_turn_and_parks_the_rest() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()

        async def reject(payload: PreStep, following: Next) -> PreStepDecision:
            return RejectStep()

        listening = it.ctx.on(AGENT_PRE_STEP, reject)
        agent.followup(user_message("a"))
        agent.followup(user_message("b"))
        await agent.when_idle()
        assert short(agent.session) == "spliced turn/start spliced spliced turn/end"
        assert ends(agent.session) == [{"kind": "blocked"}]
        assert [m["content"][0]["text"] for m in agent.inbox.next_turn] == ["b"]  # type: ignore[typeddict-item]
        await listening()
        await it.prompt(agent, "c")
        assert [texts_of(r)[-1] for r in it.model.requests] == ["user: b", "user: c"]


@aio
async def test_rejecting_a_later_step_keeps_the_earlier_ones() -> None:
    async with loop(calls(("c1", "echo", "{}"))) as it:
        it.tool("echo", echo)
        agent = await it.agent()

        async def reject(payload: PreStep, following: Next) -> PreStepDecision:
            return RejectStep() if payload.step == 2 else await following()

        it.ctx.on(AGENT_PRE_STEP, reject)
        await it.prompt(agent, "go")
        assert short(agent.session).endswith("tool/result step/end turn/end")
        assert ends(agent.session) == [{"kind": "blocked"}]


@aio
async def test_a_listener_that_empties_the_batch_completes_the_turn_without_a_step() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()

        async def empty(payload: PreStep, following: Next) -> PreStepDecision:
            return EnterStep(())

        it.ctx.on(AGENT_PRE_STEP, empty)
        await it.prompt(agent, "go")
        assert short(agent.session) == "spliced turn/start spliced turn/end"
        assert ends(agent.session) == [{"kind": "completed"}]
        assert it.model.requests == []


@aio
async def test_steering_that_a_listener_leaves_out_gets_no_step_of_its_own() -> None:
    async with loop(text("one"), text("never")) as it:
        agent = await it.agent()
        steered = iter([True])

        def steer(stopping: TurnStopping) -> None:
            if next(steered, False):
                agent.steer(user_message("more"))

        async def without(payload: PreStep, following: Next) -> PreStepDecision:
            return EnterStep(()) if payload.step == 2 else await following()

        it.ctx.on(AGENT_TURN_STOPPING, steer)
        it.ctx.on(AGENT_PRE_STEP, without)
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]
        assert len(it.model.requests) == 1


@aio
async def test_a_turn_that_is_cancelled_before_it_gets_going_asks_nobody_for_a_prompt() -> None:
    async with loop(text("never")) as it:
        agent = await it.agent()
        asked: list[Any] = []

        def section(at: Any) -> str:
            asked.append(at)
            return "x"

        it.ctx.use(SYSTEM_PROMPT).section("x", 1, section)
        agent.followup(user_message("go"))
        agent.cancel({"kind": "user"})
        await agent.when_idle()
        assert asked == []


@aio
async def test_a_turn_that_is_cancelled_in_its_assembly_asks_nobody_whether_to_enter() -> None:
    async with loop(text("never")) as it:
        agent, asked = await it.agent(), list[Any]()

        async def listen(payload: PreStep, following: Next) -> PreStepDecision:
            asked.append(payload)
            return await following()

        it.ctx.use(SYSTEM_PROMPT).section("x", 1, lambda at: agent.cancel({"kind": "user"}))
        it.ctx.on(AGENT_PRE_STEP, listen)
        await it.prompt(agent, "go")
        assert asked == []
        assert ends(agent.session) == [{"kind": "aborted", "reason": {"kind": "user"}}]


@aio
async def test_next_step_items_precede_the_prompt() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        agent.inject(user_message("context"))
        assert short(agent.session) == "spliced"
        await it.prompt(agent, "go")
        assert texts_of(it.model.requests[0]) == ["user: context", "user: go"]


async def _failing(it: Loop, where: str) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("boom")

    if where == "assembly":
        it.ctx.use(SYSTEM_PROMPT).section("x", 1, "{{nothing}}")
    elif where == "pre-step":
        it.ctx.on(AGENT_PRE_STEP, fail)
    else:
        it.ctx.on(LLM_STREAM, fail)


@pytest.mark.parametrize("where", ["assembly", "pre-step"])
@aio
async def test_prompts_claimed_by_a_turn_that_fails_before_its_step_wait_again(where: str) -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        told: list[str] = []
        it.ctx.on(AGENT_ERROR, lambda failed: told.append(short(agent.session)))
        await _failing(it, where)
        agent.inject(user_message("context"))
        await it.prompt(agent, "go")
        assert short(agent.session).endswith("turn/start spliced spliced spliced spliced turn/end")
        assert ends(agent.session)[0]["kind"] == "error"
        assert told[0].endswith("turn/start spliced spliced"), "agent/error comes before turn/end"
        assert [len(agent.inbox.next_step), len(agent.inbox.next_turn)] == [1, 1]
        assert it.model.requests == []


@aio
async def test_what_a_listener_left_out_of_a_step_stays_out_when_the_step_fails() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()

        async def first_alone(payload: PreStep, following: Next) -> PreStepDecision:
            return EnterStep(payload.messages[:1])

        it.ctx.on(AGENT_PRE_STEP, first_alone)
        await _failing(it, "stream")
        agent.inject(user_message("context"))
        await it.prompt(agent, "go")
        assert ends(agent.session)[0]["kind"] == "error"
        assert [m["content"][0]["text"] for m in data_of(agent.session, "user/message")] == ["context"]
        assert [len(agent.inbox.next_step), len(agent.inbox.next_turn)] == [0, 0]


@pytest.mark.parametrize(
    "messages", [("x",), (None,), ({"role": "user"},), ({"role": "assistant", "id": "m"},), "xy"], ids=str
)
@aio
async def test_a_listener_that_lets_in_what_is_no_message_is_told_and_the_prompt_waits(messages: Any) -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()

        async def junk(payload: PreStep, following: Next) -> PreStepDecision:
            return EnterStep(messages)

        listening = it.ctx.on(AGENT_PRE_STEP, junk)
        await it.prompt(agent, "go")
        (end,) = ends(agent.session)
        assert end["error"]["message"].startswith(
            "a listener of agent/pre-step answered EnterStep, expected "
        )
        await listening()
        assert agent.continue_pending()
        await agent.when_idle()
        assert texts_of(it.model.requests[0]) == ["user: go"]


@aio
async def test_a_strict_variable_failure_ends_one_turn_and_the_next_wake_works() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        section = it.ctx.use(SYSTEM_PROMPT).section("x", 1, "{{nothing}}")
        await it.prompt(agent, "go")
        await section()
        await it.prompt(agent, "again")
        assert [end["kind"] for end in ends(agent.session)] == ["error", "completed", "completed"]
        assert texts_of(it.model.requests[-1]) == ["user: go", "assistant: done", "user: again"]


@aio
async def test_a_raising_stream_listener_ends_the_turn_without_asking_for_a_retry() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        await _failing(it, "stream")
        await it.prompt(agent, "go")
        assert short(agent.session) == f"{OPENING} step/end turn/end"
        [end] = ends(agent.session)
        assert end["error"]["code"] == "UNKNOWN"
        assert end["error"]["message"].startswith(f"boom (the stream of route p, {__file__}:")


@aio
async def test_a_failed_reply_leaves_its_chunk_and_its_facts() -> None:
    async with loop(failed("SERVER", "down")) as it:
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert short(agent.session) == f"{OPENING} chunks step/end turn/end"
        assert ends(agent.session) == [{"kind": "error", "error": {"message": "down", "code": "SERVER"}}]


@aio
async def test_the_code_of_any_harness_error_is_kept() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()

        def fail(*_: object) -> None:
            raise CompositionError("odd", code="ODD_ROW")

        it.ctx.on(AGENT_PRE_STEP, fail)
        await it.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "error", "error": {"message": "odd", "code": "ODD_ROW"}}]


@aio
async def test_no_model_is_an_error_that_says_how_to_name_one() -> None:
    from dsh.agent.contract import AgentOptions

    async with loop(text("done")) as it:
        agent = await it.agent(options=AgentOptions(provider="p"))
        errors: list[AgentError] = []
        it.ctx.on(AGENT_ERROR, lambda told: errors.append(told.error))
        await it.prompt(agent, "go")
        assert ends(agent.session)[0]["error"]["code"] == "UNKNOWN"
        assert "agent-default-model" in errors[0].hint


@aio
async def test_a_session_that_was_closed_badly_takes_no_further_turn() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        agent.session.append("turn/start", {"turn": 1})
        errors: list[Any] = []
        it.ctx.on(AGENT_ERROR, errors.append)
        await it.prompt(agent, "go")
        assert short(agent.session) == "turn/start spliced"
        assert [(e.turn, e.step) for e in errors] == [(0, 0)]
        assert len(agent.inbox.next_turn) == 1
        assert agent.status == "idle"


@aio
async def test_rows_that_other_rows_write_at_creation_come_first() -> None:
    async with loop(text("done")) as it:
        it.ctx.on(SESSION_CREATED, lambda s: s.append("sandbox/mode", {"mode": "read-only"}) and None)
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert short(agent.session) == f"sandbox/mode {PLAIN}"


async def tasks_of_a_reply(chunks: int) -> int:
    """How many tasks one turn starts whose reply has so many deltas."""
    words: list[Item] = [BlockStart(0, "text"), *(TextDelta(0, "x") for _ in range(chunks))]
    end: list[Item] = [BlockEnd(0, {"type": "text", "text": "x" * chunks}), Finish({"kind": "stop"})]
    started = 0
    running = asyncio.get_running_loop()

    def count(running: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        nonlocal started
        started += 1
        return asyncio.Task(coro, loop=running, **options)

    async with loop([*words, *end]) as it:
        agent = await it.agent()
        running.set_task_factory(count)
        await it.prompt(agent, "go")
        running.set_task_factory(None)
        assert len(data_of(agent.session, "assistant/chunk")) == chunks + 3
    return started


@aio
async def test_a_long_reply_starts_no_more_tasks_than_a_short_one() -> None:
    assert await tasks_of_a_reply(1) == await tasks_of_a_reply(500)
