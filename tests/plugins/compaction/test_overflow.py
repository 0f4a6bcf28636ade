"""A request that the provider finds too large is tried again with a shorter history, inside its step."""

from typing import Any

import pytest

from dsh.agent.prompt import SYSTEM_PROMPT
from dsh.capabilities.compaction import TOOL_RESULT_PRUNER
from dsh.plugins.tool_result_pruner import Config, Pruner
from dsh.session.log import Session
from dsh.session.value import json_equal
from dsh.session.verify.log import verify
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
            *("request/digest", "chunks"),
            *("compaction/start", "compaction/summary", "user/message", "compaction/end"),
            *("request/digest", "chunks", "assistant/message", "step/end", "turn/end"),
        ]
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
async def test_a_prompt_with_the_runtime_context_behind_it_is_not_summarised_away_either() -> None:
    async with compacting(text(long(100)), TOO_LARGE, text("two"), window=100_000) as c:
        facts = ["old"]
        c.loop.ctx.use(SYSTEM_PROMPT).context("facts", 1, lambda _: facts[0])
        agent = await c.agent()
        await c.talk(agent, long(200))
        facts[0] = "new"
        await c.talk(agent, "THE NEW TASK")

        assert surface(agent.session)[0] == "checkpoint"
        assert texts_of(c.model.requests[-1])[1] == "user: THE NEW TASK"


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
        await c.talk(agent, long(1500), "go on", "and on")

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
            await c.talk(agent, long(3000), "go on")

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
async def test_a_cancel_during_recovery_is_no_retry_and_nothing_to_warn_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with compacting(text(long(100)), TOO_LARGE, window=100_000) as c:
        agent = await c.agent()
        c.model.summaries = [[lambda: agent.cancel({"kind": "user"}), *text(GIST)]]
        await c.talk(agent, long(200), "go on")

        assert len(c.model.requests) == 2
        assert [record for record in caplog.records if record.levelname == "WARNING"] == []
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


@pytest.mark.parametrize("window", [None, 100_000])
@aio
async def test_a_refusal_shows_the_window_so_that_the_next_one_is_not_met(window: int | None) -> None:
    """The meter thought that it fits, or nobody knows the window: from then on compaction is ahead."""
    replies = [calls((f"c{n}", "note", "{}")) for n in range(20)]
    async with compacting(*replies, text("end"), window=window) as c:
        note(c, 200)
        c.model.limit = 2000
        agent = await c.agent()
        await c.talk(agent, "work")

        assert ends(agent.session)[-1]["kind"] == "completed"
        assert c.model.refused <= 2
        assert len(c.model.asked) >= 3


@aio
async def test_a_batch_of_results_of_middle_length_is_cut_further_until_it_is_taken() -> None:
    batch = calls(*((f"c{n}", "note", "{}") for n in range(8)))
    pruner = {"thresholdChars": 4000, "headChars": 2000, "tailChars": 500}
    async with compacting(batch, text("end"), window=100_000, pruner=pruner) as c:
        note(c, 500)
        c.model.limit = 1200
        agent = await c.agent()
        await c.talk(agent, "work")

        assert ends(agent.session)[-1]["kind"] == "completed"
        assert texts_of(c.model.requests[-1])[-1].count("taken out to save room") == 1
        assert c.model.refused == 2  # all of it, and a quarter of the budget each: 8 x (500 + 125 + 62) / 4
        assert all(is_paired(request.messages) for request in c.model.requests)


@aio
async def test_a_prompt_that_is_too_large_ends_the_turn_and_a_person_is_told_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with compacting(text("end"), window=100_000, pruner=PRUNER) as c:
        c.model.limit = 2000
        agent = await c.agent()
        with warnings_of(caplog) as warnings:
            await c.talk(agent, long(3000))

        assert ends(agent.session)[-1]["error"]["code"] == "CONTEXT_WINDOW_EXCEEDED"
        assert (c.model.refused, rows_of(agent.session, "compaction/")) == (1, [])
        [told] = warnings()
        assert "are one prompt (event" in told
        assert "shorten it, or take a model with a larger window" in told


@aio
async def test_a_prompt_that_was_too_large_is_not_in_the_way_of_the_next() -> None:
    async with compacting(text("end"), window=100_000, pruner=PRUNER) as c:
        c.model.limit = 2000
        agent = await c.agent()
        await c.talk(agent, long(3000), "something smaller")

        assert [end["kind"] for end in ends(agent.session)] == ["error", "completed"]
        first, second = texts_of(c.model.requests[-1])
        assert "The middle of this message was taken out" in first
        assert second == "user: something smaller"
        assert list(verify(agent.session).findings) == []


@aio
async def test_without_a_pruner_the_turn_ends_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    async with compacting(text("end"), window=100_000) as c:
        c.model.limit = 2000
        agent = await c.agent()
        with warnings_of(caplog) as warnings:
            await c.talk(agent, long(3000), "a", "b")

        assert [end["kind"] for end in ends(agent.session)] == ["error"] * 3
        assert warnings()


@aio
async def test_what_was_cut_counts_although_something_failed_afterwards() -> None:
    """The history is shorter, so the request is made again, whatever became of the rest."""
    replies = [calls(("c", "note", "{}")), text("seen"), TOO_LARGE, text("end")]
    async with compacting(*replies, window=100_000) as c:
        note(c, 400)
        c.loop.ctx.provide(TOOL_RESULT_PRUNER, _CutsAndFails())
        agent = await c.agent()
        await c.talk(agent, "one", "two")

        assert len(data_of(agent.session, "compaction/prune")) == 1
        assert [end["kind"] for end in ends(agent.session)] == ["completed", "completed"]


class _CutsAndFails(Pruner):
    def __init__(self) -> None:
        super().__init__(Config(threshold_chars=400, head_chars=100, tail_chars=50))

    def prune(self, session: Session, **options: Any) -> int:
        super().prune(session, **options)
        raise RuntimeError("broken")
