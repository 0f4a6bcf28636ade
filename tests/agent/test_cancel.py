"""What a cancellation keeps of a reply and of tool calls; the windows themselves are in `test_windows.py`."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from dsh.agent.contract import (
    AGENT_REQUEST_ERROR,
    CancelCause,
    RequestFailed,
    RetryRequest,
)
from dsh.agent.failure import AgentError
from dsh.llm.request import LlmRequest
from dsh.session.chunk import BlockStart, Chunk, Finish, TextDelta, UsageChunk
from dsh.session.message import user_message
from dsh.session.store import SESSION_EVENT, Appended
from tests.agent.kit import calls, data_of, ends, failed, loop, short, text, texts_of, thought, until
from tests.aio import aio

USER: CancelCause = {"kind": "user"}
REQUESTED = "spliced turn/start spliced step/start user/message request/header request/context request/digest"
ABORTED = [{"kind": "aborted", "reason": {"kind": "user"}}]


@aio
async def test_what_was_visible_when_the_stream_was_cut_is_kept_as_interrupted() -> None:
    async with loop() as it:
        agent = await it.agent()
        it.model.replies = [
            [
                *thought("hmm"),
                BlockStart(1, "text"),
                TextDelta(1, "half an"),
                UsageChunk({"inputTokens": 3, "outputTokens": 1}),
                lambda: agent.cancel(USER),
                TextDelta(1, " answer"),
            ]
        ]
        await it.prompt(agent, "go")
        assert short(agent.session) == f"{REQUESTED} chunks request/usage assistant/message step/end turn/end"
        (kept,) = data_of(agent.session, "assistant/message")
        assert list(kept) == ["turn", "step", "message", "interrupted", "usage"]
        assert [block["text"] for block in kept["message"]["content"]] == ["hmm", "half an"]
        chunks = [e.seq for e in agent.session.events() if e.type == "assistant/chunk"]
        assert agent.session.event(chunks[-1] + 2).sources == tuple(chunks)
        assert len(chunks) == 5, "no chunk after the cancellation is logged"
        assert it.model.closed == 1


@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "interrupted"])
@aio
async def test_the_stream_of_a_reply_is_closed_before_the_step_goes_on(is_cut: bool) -> None:
    async with loop() as it:
        agent, closed = await it.agent(), list[str]()

        async def stream(request: LlmRequest) -> AsyncIterator[Chunk]:
            try:
                yield BlockStart(0, "text")
                if is_cut:
                    agent.cancel(USER)
                yield Finish({"kind": "stop"})
            finally:
                for _ in range(50):
                    await asyncio.sleep(0)
                closed.append(short(agent.session))

        it.model.stream = stream  # type: ignore[method-assign]
        await it.prompt(agent, "go")
        assert closed == [f"{REQUESTED} chunks"]


@pytest.mark.parametrize("is_cut", [False, True], ids=["whole", "interrupted"])
@aio
async def test_only_a_message_that_is_whole_keeps_what_its_adapter_replays(is_cut: bool) -> None:
    async with loop([*text("done")[:-1], Finish({"kind": "stop"}, {"response": "r1"})]) as it:
        agent = await it.agent()

        def observe(appended: Appended) -> None:
            if is_cut and appended.event.data.get("chunk", {}).get("type") == "finish":
                agent.cancel(USER)

        it.ctx.on(SESSION_EVENT, observe)
        await it.prompt(agent, "go")
        (said,) = data_of(agent.session, "assistant/message")
        source = {"kind": "model", "provider": "p", "model": "m"}
        assert said.get("interrupted", False) is is_cut
        assert said["message"]["source"] == (
            source if is_cut else {**source, "replayState": {"response": "r1"}}
        )


@aio
async def test_an_interrupted_message_holds_no_tool_calls() -> None:
    async with loop() as it:
        agent = await it.agent()
        asked = calls(("c1", "echo", "{}"))[:-1]
        it.model.replies = [[*asked, lambda: agent.cancel(USER), TextDelta(0, "x")]]
        await it.prompt(agent, "go")
        assert short(agent.session) == f"{REQUESTED} chunks step/end turn/end"


@aio
async def test_the_adapters_own_aborted_finish_is_not_logged() -> None:
    async with loop() as it:
        agent = await it.agent()

        async def stop() -> None:
            agent.cancel(USER)
            raise RuntimeError("connection closed")

        it.model.replies = [[BlockStart(0, "text"), stop]]
        await it.prompt(agent, "go")
        chunks = data_of(agent.session, "assistant/chunk")
        assert [c["chunk"]["type"] for c in chunks] == ["block-start"]
        assert ends(agent.session) == ABORTED


@aio
async def test_a_finish_of_kind_aborted_in_a_live_turn_is_an_ordinary_failure() -> None:
    async with loop(failed("ABORTED", "server said so", kind="aborted")) as it:
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert ends(agent.session) == [
            {"kind": "error", "error": {"message": "server said so", "code": "ABORTED"}}
        ]


@aio
async def test_cancellation_wins_over_a_retry() -> None:
    async with loop(failed("SERVER")) as it:
        agent = await it.agent()

        async def retry(payload: RequestFailed, following: Any) -> RetryRequest:
            agent.cancel(USER)
            return {"kind": "retry"}

        it.ctx.on(AGENT_REQUEST_ERROR, retry)
        await it.prompt(agent, "go")
        assert short(agent.session) == f"{REQUESTED} chunks step/end turn/end"
        assert ends(agent.session) == ABORTED
        assert len(it.model.requests) == 1


@aio
async def test_cancelled_at_the_message_every_call_gets_a_made_up_pair() -> None:
    async with loop(calls(("c1", "echo", '{"a": 1}'), ("c2", "none", "{}"))) as it:
        agent = await it.agent()
        it.when("assistant/message", lambda s: agent.cancel(USER))
        await it.prompt(agent, "go")
        assert short(agent.session) == (
            f"{REQUESTED} chunks assistant/message "
            "tool/call tool/result tool/call tool/result step/end turn/end"
        )
        assert [d["arguments"] for d in data_of(agent.session, "tool/call")] == ['{"a": 1}', "{}"]
        assert [d["error"] for d in data_of(agent.session, "tool/result")] == [
            {"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"}
        ] * 2


@pytest.mark.parametrize(
    "cause",
    [{}, {"kind": "bogus"}, {"kind": "hook"}, {"kind": "hook", "reason": 3}, {"kind": {1}}, "user", None],
)
@aio
async def test_a_cause_that_the_log_could_not_hold_is_refused_before_anything_happens(cause: Any) -> None:
    """Else the turn would have no end in the log, and the session would take no other."""
    async with loop(text("done")) as it:
        agent = await it.agent()
        agent.followup(user_message("a"))
        agent.followup(user_message("b"))
        with pytest.raises(AgentError) as caught:
            agent.cancel(cause)
        assert caught.value.code == "INVALID_CAUSE"
        assert caught.value.hint
        await agent.when_idle()
        assert ends(agent.session) == [{"kind": "completed"}] * 2


@aio
async def test_the_next_request_after_a_cancellation_is_complete() -> None:
    async with loop(calls(("c1", "echo", "{}")), text("done")) as it:
        agent = await it.agent()
        it.when("assistant/message", lambda s: agent.cancel(USER))
        await it.prompt(agent, "go")
        await it.prompt(agent, "again")
        assert (
            texts_of(it.model.requests[-1])
            == [
                "user: go",
                "assistant: call c1",
                "user: result c1: Error: tool call aborted before dispatch",
                "user: again",
                "assistant: done",
            ][:4]
        )


@aio
async def test_a_task_that_is_torn_down_writes_no_turn_end() -> None:
    gate = asyncio.Event()
    async with loop([gate.wait]) as it:
        agent = await it.agent()
        agent.followup(user_message("go"))
        await until(lambda: it.model.requests)
        (driver,) = [t for t in asyncio.all_tasks() if t.get_name() == f"agent {agent.id}"]
        driver.cancel()
        await agent.when_idle()
        assert short(agent.session) == REQUESTED
