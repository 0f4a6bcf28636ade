"""A request that the provider finds too large is tried again with a shorter history, inside its step."""

import pytest

from dsh.session.value import json_equal
from tests.agent.kit import Reply, calls, data_of, ends, failed, text, texts_of, types
from tests.aio import aio
from tests.plugins.compaction.kit import (
    GIST,
    Compacting,
    compacting,
    is_paired,
    long,
    rows_of,
    surface,
    warnings_of,
)

TOO_LARGE: Reply = failed("CONTEXT_WINDOW_EXCEEDED", "too long")
PRUNER = {"thresholdChars": 400, "headChars": 100, "tailChars": 50}


def note(c: Compacting, words: int) -> None:
    """A tool whose result has that many words."""

    async def body(arguments: object, run: object) -> str:
        return long(words)

    c.loop.tool("note", body)


@aio
async def test_the_history_is_summarised_inside_the_open_step_and_the_step_goes_on() -> None:
    async with compacting(text(long(100)), TOO_LARGE, text("two"), window=100_000) as c:
        agent = await c.agent()
        await c.talk(agent, long(200), "go on")

        session = agent.session
        second = [e.seq for e in session.select("turn/start")][1]
        assert types(session, second) == [
            *("turn/start", "agent/inbox/spliced", "step/start", "user/message"),
            *("chunks", "compaction/start", "compaction/summary", "user/message", "compaction/end"),
            *("chunks", "assistant/message", "step/end", "turn/end"),
        ] or "request/digest" in types(session, second)
        assert surface(session) == ["checkpoint", "go on", "two"]
        assert ends(session)[-1]["kind"] == "completed"
        assert len(c.model.requests) == 3
        assert data_of(session, "compaction/start")[0]["turn"] == 2


@aio
async def test_a_prompt_that_no_request_has_carried_is_not_summarised_away() -> None:
    """What the model has answered to goes first; the task stays in the user's words."""
    async with compacting(text(long(100)), TOO_LARGE, text("two"), window=100_000) as c:
        agent = await c.agent()
        await c.talk(agent, long(200), "THE NEW TASK")

        assert texts_of(c.model.requests[-1])[1:] == ["user: THE NEW TASK"]


@aio
async def test_a_second_overflow_of_the_step_ends_the_turn_with_the_providers_error() -> None:
    async with compacting(text(long(100)), TOO_LARGE, window=100_000) as c:
        agent = await c.agent()
        await c.talk(agent, long(200), "go on")

        assert len(c.model.requests) == 3
        assert len(c.model.asked) == 1
        error = ends(agent.session)[-1]["error"]
        assert json_equal(error, {"message": "too long", "code": "CONTEXT_WINDOW_EXCEEDED"})


@aio
async def test_the_budget_is_new_after_a_reply() -> None:
    replies = [text(long(100)), TOO_LARGE, text(long(400)), TOO_LARGE, text("end")]
    async with compacting(*replies, window=100_000) as c:
        agent = await c.agent()
        await c.talk(agent, long(200), "go on", "and on")

        assert len(c.model.asked) == 2
        assert ends(agent.session)[-1]["kind"] == "completed"


@aio
async def test_the_budget_is_new_in_the_next_turn() -> None:
    replies = [text(long(300)), TOO_LARGE, TOO_LARGE, TOO_LARGE, text("end")]
    async with compacting(*replies, window=100_000) as c:
        agent = await c.agent()
        await c.talk(agent, long(200), long(200), long(200))

        assert [end["kind"] for end in ends(agent.session)] == ["completed", "error", "completed"]


@aio
async def test_no_overflow_retries_means_no_summary() -> None:
    async with compacting(text("a"), TOO_LARGE, window=100_000, config={"maxOverflowRetries": 0}) as c:
        agent = await c.agent()
        await c.talk(agent, long(200), "go on")

        assert (len(c.model.requests), c.model.asked) == (2, [])


@aio
async def test_a_cut_that_lands_is_enough_for_a_retry_though_the_summary_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replies = [calls(("c1", "note", "{}")), text("one"), TOO_LARGE, text("end")]
    async with compacting(*replies, window=100_000, pruner=PRUNER) as c:
        note(c, 300)
        c.model.summaries = [failed("AUTH", "boom")]
        agent = await c.agent()
        with warnings_of(caplog) as warnings:
            await c.talk(agent, "work", "go on")

        assert rows_of(agent.session, "compaction/") == [
            *("compaction/prune", "compaction/start", "compaction/end")
        ]
        assert ends(agent.session)[-1]["kind"] == "completed"
        assert [w for w in warnings() if "boom" in w]


@aio
async def test_a_cut_that_brings_the_history_below_the_threshold_needs_no_summary() -> None:
    async with compacting(calls(("c1", "note", "{}")), window=100_000, pruner=PRUNER) as c:
        note(c, 3300)

        def shrink() -> None:
            c.model.window = 5000

        c.model.replies += [text("one"), [shrink, *TOO_LARGE], text("end")]
        agent = await c.agent()
        await c.talk(agent, "work", "go on")

        assert rows_of(agent.session, "compaction/") == ["compaction/prune"]
        assert c.model.asked == []
        assert ends(agent.session)[-1]["kind"] == "completed"


@aio
async def test_results_that_no_reply_has_followed_are_cut_in_a_second_round_only() -> None:
    replies = [text(long(300)), calls(("c1", "note", "{}")), TOO_LARGE, TOO_LARGE, text("end")]
    async with compacting(*replies, window=100_000, pruner=PRUNER) as c:
        note(c, 300)
        agent = await c.agent()
        await c.talk(agent, long(300), "work")

        assert rows_of(agent.session, "compaction/") == [
            *("compaction/start", "compaction/summary", "compaction/end", "compaction/prune")
        ]
        second, third = c.model.requests[-2:]
        assert long(300) in texts_of(second)[-1]
        assert "taken out to save room" in texts_of(third)[-1]
        assert ends(agent.session)[-1]["kind"] == "completed"


@aio
async def test_where_only_unseen_results_are_left_they_are_cut_at_once() -> None:
    replies = [calls(("c1", "note", "{}")), TOO_LARGE, text("end")]
    async with compacting(*replies, window=100_000, pruner=PRUNER) as c:
        note(c, 300)
        agent = await c.agent()
        await c.talk(agent, "work")

        assert rows_of(agent.session, "compaction/") == ["compaction/prune"]
        assert ends(agent.session)[-1]["kind"] == "completed"


@aio
async def test_a_summary_that_is_too_large_to_ask_for_is_made_of_a_shorter_part() -> None:
    async with compacting(text(long(100)), text(long(100)), TOO_LARGE, text("end"), window=100_000) as c:
        c.model.summaries = [TOO_LARGE, text(GIST)]
        agent = await c.agent()
        await c.talk(agent, long(400), long(200), "go on")

        first, second = c.model.asked
        assert len(first.messages) > len(second.messages)
        assert surface(agent.session)[0] == "checkpoint"
        assert ends(agent.session)[-1]["kind"] == "completed"
        assert all(is_paired(request.messages) for request in c.model.requests)


@aio
async def test_other_failures_are_not_its_business() -> None:
    async with compacting(text("a"), failed("AUTH"), window=100_000) as c:
        agent = await c.agent()
        await c.talk(agent, long(200), "go on")

        assert rows_of(agent.session, "compaction/") == []


@aio
async def test_nothing_to_gain_leaves_the_providers_error() -> None:
    async with compacting(TOO_LARGE, window=100_000) as c:
        agent = await c.agent()
        await c.talk(agent, "short")

        assert rows_of(agent.session, "compaction/") == []
        assert ends(agent.session)[-1]["error"]["code"] == "CONTEXT_WINDOW_EXCEEDED"


@aio
async def test_a_cancel_during_recovery_is_no_retry() -> None:
    async with compacting(text(long(100)), TOO_LARGE, window=100_000) as c:
        agent = await c.agent()
        c.model.summaries = [[lambda: agent.cancel({"kind": "user"}), *text(GIST)]]
        await c.talk(agent, long(200), "go on")

        assert len(c.model.requests) == 2
        assert rows_of(agent.session, "compaction/") == ["compaction/start", "compaction/end"]
        assert ends(agent.session)[-1]["kind"] == "aborted"


@aio
async def test_an_interrupted_call_in_the_history_does_not_block() -> None:
    """CO-03: a call that was cancelled before it ran has a result like any other."""
    replies = [calls(("c1", "note", "{}"), ("c2", "note", "{}")), text(long(300)), TOO_LARGE, text("end")]
    async with compacting(*replies, window=100_000) as c:
        agent = await c.agent()

        async def stop(arguments: object, run: object) -> str:
            agent.cancel({"kind": "user"})
            return "stopped"

        c.loop.tool("note", stop)
        await c.talk(agent, long(300), "what happened?", "go on")

        assert surface(agent.session) == ["checkpoint", "go on", "end"]
        assert all(is_paired(request.messages) for request in (*c.model.requests, *c.model.asked))
