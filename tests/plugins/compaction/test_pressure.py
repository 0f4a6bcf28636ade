"""Before a step whose request would pass the threshold, the history is made shorter, and the turn goes on."""

import pytest

from dsh.agent.prompt import SYSTEM_PROMPT
from dsh.session.chunk import Finish
from dsh.session.estimate import log_price
from dsh.session.message import text_of
from tests.agent.kit import calls, data_of, ends, failed, text, texts_of, thought
from tests.aio import aio
from tests.plugins.compaction.kit import (
    GIST,
    beside,
    compacting,
    image,
    is_paired,
    long,
    rows_of,
    silent,
    surface,
    used,
    warnings_of,
)

TALK = ("compaction/", "user/message", "turn/", "step/", "tool/result", "assistant/message")


@aio
async def test_a_history_over_the_threshold_becomes_a_summary_between_steps() -> None:
    async with compacting(text(long(900)), text("two")) as c:
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")

        assert rows_of(agent.session, *TALK) == [
            *("turn/start", "step/start", "user/message", "assistant/message", "step/end", "turn/end"),
            *("turn/start", "compaction/start", "compaction/summary", "user/message", "compaction/end"),
            *("step/start", "user/message", "assistant/message", "step/end", "turn/end"),
        ]
        assert surface(agent.session) == ["checkpoint", "lorem lorem lorem lorem ", "go on", "two"]
        assert [request.purpose for request in c.model.asked] == ["compaction"]
        assert texts_of(c.model.requests[1])[0].endswith("</compacted-summary>")
        assert GIST in texts_of(c.model.requests[1])[0]


@aio
async def test_below_the_threshold_nothing_happens() -> None:
    async with compacting(text("one")) as c:
        agent = await c.agent()
        await c.talk(agent, long(300), long(300))

        assert rows_of(agent.session, "compaction/") == []
        assert c.model.asked == []


@aio
async def test_auto_off_leaves_histories_alone() -> None:
    async with compacting(text(long(3000)), config={"auto": False}) as c:
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")

        assert rows_of(agent.session, "compaction/") == []


@aio
async def test_the_summary_event_prices_exactly_what_it_replaces() -> None:
    async with compacting(text(long(900)), text("two")) as c:
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")

        [told] = data_of(agent.session, "compaction/summary")
        replaced = [agent.session.event(seq) for seq in told["shadowedSeqs"]]
        assert told["shadowedTokenCount"] == sum(log_price(event.data) for event in replaced)
        assert told["shadowedRange"] == {"start": replaced[0].seq, "end": replaced[-1].seq}
        [checkpoint] = [e for e in agent.session.select("user/message") if e.surface != "append"]
        assert checkpoint.surface == {"op": "replace", **told["shadowedRange"]}
        start = next(agent.session.select("compaction/start"))
        summary = next(agent.session.select("compaction/summary"))
        assert checkpoint.sources == (start.seq, summary.seq, *told["shadowedSeqs"])
        assert checkpoint.seq == summary.seq + 1
        assert start.data["turn"] == 2


@aio
async def test_a_second_compaction_folds_the_first_summary_in() -> None:
    async with compacting(text(long(900)), text("two"), text(long(1200)), text("four")) as c:
        c.model.summaries = [text("first gist"), text("second gist")]
        agent = await c.agent()
        await c.talk(agent, long(900), "go on", "more", "and on")

        assert len(c.model.asked) == 2
        assert "first gist" in texts_of(c.model.asked[1])[0]
        assert [line for line in surface(agent.session) if line == "checkpoint"] == ["checkpoint"]
        assert "second gist" in text_of(agent.session.derive_messages()[0])
        assert "first gist" not in "".join(texts_of(c.model.requests[3]))


@aio
async def test_a_checkpoint_alone_is_not_summarised_again(caplog: pytest.LogCaptureFixture) -> None:
    """After one compaction the rest is too large all the same: one model call, one warning."""
    async with compacting(text("one"), text(long(3000)), text("three")) as c:
        agent = await c.agent()
        with warnings_of(caplog) as warnings:
            await c.talk(agent, long(800), "say much", "go on", "and on", "and on")

        assert len(c.model.asked) == 1
        assert len([w for w in warnings() if "nothing more can be compacted" in w]) == 1
        assert [end["kind"] for end in ends(agent.session)] == ["completed"] * 5


@aio
async def test_that_nothing_can_be_compacted_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The system prompt and tools alone may exceed the threshold."""
    async with compacting(used("one", 5000), window=2000) as c:
        agent = await c.agent()
        with warnings_of(caplog) as warnings:
            await c.talk(agent, "a", "b", "c", "d")

        assert rows_of(agent.session, "compaction/") == []
        assert len([w for w in warnings() if "nothing more can be compacted" in w]) == 1


@aio
async def test_system_text_and_tools_that_fill_the_window_are_told_once_and_cost_no_summaries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    replies = [*(calls((f"c{n}", "note", "{}")) for n in range(8)), text("end")]
    async with compacting(*replies, window=2000) as c:

        async def note(arguments: object, run: object) -> str:
            return long(100)

        c.loop.tool("note", note)
        c.loop.ctx.use(SYSTEM_PROMPT).section("rules", 1, lambda _: long(1500))
        agent = await c.agent()
        with warnings_of(caplog) as warnings:
            await c.talk(agent, "work", "and on")

        assert c.model.asked == []
        [told] = warnings()
        assert "system text and tools alone take about" in told


@aio
async def test_one_large_message_at_the_edge_of_what_stays_is_summarised_in_the_second_attempt() -> None:
    """With it more would stay than is meant to: what is to stay is halved before it is given up."""
    replies = [calls(("c1", "note", "{}")), text("end")]
    async with compacting(*replies, config={"retainTokens": 600}) as c:

        async def note(arguments: object, run: object) -> str:
            return long(250)

        c.loop.tool("note", note)
        agent = await c.agent()
        await c.talk(agent, long(1100))

        assert surface(agent.session) == ["checkpoint", "call c1", "result c1", "end"]


@aio
async def test_a_result_that_the_window_does_not_hold_is_cut_before_anything_is_summarised() -> None:
    """No summary of the rest would help, so none is asked for."""
    replies = [text("one"), calls(("c1", "note", "{}")), text("end")]
    pruner = {"thresholdChars": 800, "headChars": 400, "tailChars": 200}
    async with compacting(*replies, pruner=pruner) as c:

        async def note(arguments: object, run: object) -> str:
            return long(3000)

        c.loop.tool("note", note)
        agent = await c.agent()
        await c.talk(agent, long(300), "work")

        assert (c.model.asked, rows_of(agent.session, "compaction/")) == ([], ["compaction/prune"])
        assert surface(agent.session)[0].startswith("lorem")


@aio
async def test_a_window_that_is_not_known_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with compacting(text(long(3000)), window=None) as c:
        agent = await c.agent()
        with warnings_of(caplog) as warnings:
            await c.talk(agent, "a", "b", "c")

        assert rows_of(agent.session, "compaction/") == []
        assert len([w for w in warnings() if "context window of model q/m is not known" in w]) == 1


@aio
async def test_what_is_retained_must_be_below_the_threshold(caplog: pytest.LogCaptureFixture) -> None:
    async with compacting(text(long(3000)), config={"retainTokens": 1600}) as c:
        agent = await c.agent()
        with warnings_of(caplog) as warnings:
            await c.talk(agent, "a", "b", "c")

        assert rows_of(agent.session, "compaction/") == []
        assert len([w for w in warnings() if "retainTokens 1600 is not below the threshold" in w]) == 1


FAILURES = {
    "nothing": (silent(), "no text"),
    "reasoning only": ([*thought("hm"), Finish({"kind": "stop"})], "no text"),
    "empty text": (text(""), "no text"),
    "blank text": (text(" \n"), "no text"),
    "cut off": (text("half a", finish="max-tokens"), "limit of output tokens"),
    "a tool call": (calls(("s1", "bash", "{}")), "no text"),
    "an image": (image(), "image"),
    "refused": (failed("AUTH", "boom"), "boom"),
    "retried in vain": (failed("SERVER", "boom"), "boom"),
}


@pytest.mark.parametrize("case", FAILURES)
@aio
async def test_a_summary_that_is_none_changes_nothing(case: str, caplog: pytest.LogCaptureFixture) -> None:
    reply, said = FAILURES[case]
    async with compacting(text(long(900)), text("two")) as c:
        c.model.summaries = [reply]
        agent = await c.agent()
        with warnings_of(caplog) as warnings:
            await c.talk(agent, long(900))
            before = agent.session.derive_messages()
            await c.talk(agent, "go on")

        assert agent.session.derive_messages()[: len(before)] == before
        assert rows_of(agent.session, "compaction/") == ["compaction/start", "compaction/end"]
        assert said in data_of(agent.session, "compaction/end")[0]["error"]
        assert [w for w in warnings() if said in w]
        assert [end["kind"] for end in ends(agent.session)] == ["completed", "completed"]
        assert len(c.model.asked) == (3 if case == "retried in vain" else 1)


@aio
async def test_the_error_of_a_bracket_is_the_adapters_own_message() -> None:
    async with compacting(text(long(900))) as c:
        c.model.summaries = [failed("AUTH", "boom")]
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")

        assert data_of(agent.session, "compaction/end")[0]["error"] == "boom"


@aio
async def test_a_call_for_a_summary_is_retried() -> None:
    async with compacting(text(long(900)), text("two")) as c:
        c.model.summaries = [failed("SERVER"), failed("RATE_LIMIT"), text(GIST)]
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")

        assert len(c.model.asked) == 3
        assert surface(agent.session)[0] == "checkpoint"
        assert rows_of(agent.session, "llm/") == []


@aio
async def test_a_summary_that_is_larger_than_what_it_stands_for_is_not_taken() -> None:
    async with compacting(text("one"), used("two", 1700), text("three")) as c:
        c.model.summaries = [text(long(500))]
        agent = await c.agent()
        await c.talk(agent, long(100), long(300), "go on")

        assert "stands for only" in data_of(agent.session, "compaction/end")[0]["error"]
        assert "checkpoint" not in surface(agent.session)


@aio
async def test_a_summary_that_failed_is_not_asked_for_at_every_step() -> None:
    """Only when the history has grown notably: a broken summariser costs few calls."""
    replies = [text(long(900)), *(calls((f"c{n}", "note", "{}")) for n in range(8)), text("end")]
    async with compacting(*replies) as c:

        async def note(arguments: object, run: object) -> str:
            return "ok"

        c.loop.tool("note", note)
        c.model.summaries = [text("")]
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")

        assert len(c.model.requests) == 10
        assert len(c.model.asked) <= 2


@aio
async def test_a_summary_that_is_text_beside_other_things_is_the_text() -> None:
    async with compacting(text(long(900)), text("two")) as c:
        c.model.summaries = [beside("kept")]
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")

        [told] = data_of(agent.session, "compaction/summary")
        assert [block["type"] for block in told["summary"]] == ["text"]
        assert [block["type"] for block in told["rawOutput"]] == ["text", "tool-call"]


@aio
async def test_the_boundary_never_falls_inside_a_parallel_batch() -> None:
    batch = calls(*((f"c{n}", "note", "{}") for n in range(3)))
    async with compacting(text(long(600)), batch, text("end"), config={"retainTokens": 300}) as c:

        async def note(arguments: object, run: object) -> str:
            return long(250)

        c.loop.tool("note", note)
        agent = await c.agent()
        await c.talk(agent, long(500), "work")

        lines = surface(agent.session)
        assert lines == [
            "checkpoint",
            "call c0 | call c1 | call c2",
            "result c0",
            "result c1",
            "result c2",
            "end",
        ]
        for request in (*c.model.requests, *c.model.asked):
            assert is_paired(request.messages)


@aio
async def test_the_request_for_a_summary_begins_as_the_last_request_did() -> None:
    """Same system text, tools and messages: the provider's cache holds."""
    async with compacting(text(long(900)), text("two")) as c:

        async def note(arguments: object, run: object) -> str:
            return "ok"

        c.loop.tool("note", note)
        agent = await c.agent()
        await c.talk(agent, long(900), "go on")

        [asked], sent = c.model.asked, c.model.requests[0]
        assert asked.messages[:-1] == sent.messages[: len(asked.messages) - 1]
        assert all(a is b for a, b in zip(asked.messages[:-1], sent.messages, strict=False))
        assert (asked.system, asked.tools) == (sent.system, sent.tools)
        assert asked.messages[-1]["source"] == {"kind": "plugin", "plugin": "dsh-compaction-basic"}
        assert asked.session_id == agent.session.id
        assert asked.config.max_tokens == 8192


@aio
async def test_a_thirty_step_turn_is_compacted_as_it_runs() -> None:
    """The task is in the summary request or on the surface, at every step; every request is paired."""
    replies = [*(calls((f"c{n}", "note", "{}")) for n in range(30)), text("end")]
    async with compacting(*replies, window=3000) as c:

        async def note(arguments: object, run: object) -> str:
            return long(150)

        c.loop.tool("note", note)
        agent = await c.agent()
        await c.talk(agent, "THE TASK")

        assert ends(agent.session)[-1]["kind"] == "completed"
        assert len(c.model.requests) == 31
        assert len(c.model.asked) >= 2
        assert texts_of(c.model.asked[0])[0] == "user: THE TASK"
        for request in (*c.model.requests, *c.model.asked):
            assert is_paired(request.messages)
        sizes = [sum(map(log_price, request.messages)) for request in c.model.requests]
        assert max(sizes) < 3000


@aio
async def test_a_cancel_during_the_summary_closes_bracket_and_turn() -> None:
    async with compacting(text(long(900)), text("two")) as c:
        agent = await c.agent()
        c.model.summaries = [[lambda: agent.cancel({"kind": "user"}), *text(GIST)], text(GIST)]
        await c.talk(agent, long(900), "go on")

        assert rows_of(agent.session, "compaction/", "turn/")[-4:] == [
            *("turn/start", "compaction/start", "compaction/end", "turn/end")
        ]
        assert "cancelled" in data_of(agent.session, "compaction/end")[0]["error"]
        assert ends(agent.session)[-1] == {"kind": "aborted", "reason": {"kind": "user"}}
        await c.talk(agent, "again")
        assert ends(agent.session)[-1]["kind"] == "completed"
