"""The text of a reply that the model broke off: kept as an interrupted message where that is asked for."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from dsh.agent.contract import AgentOptions, ResumeAgent
from dsh.agent.registry import AGENTS
from dsh.capabilities.compaction import COMPACTION
from dsh.llm.registry import LLM_STREAM
from dsh.llm.request import LlmRequest
from dsh.plugins import compaction_basic, session_checkpoint_policy, session_persistence_jsonl, token_meter
from dsh.session.chunk import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
)
from dsh.session.verify.log import verify
from tests.agent.kit import data_of, ends, loop, short, text, texts_of
from tests.aio import aio

KEEP = {"keepRefusedText": True}


def broken(code: str, *, is_closed: bool = True, words: str = "a page of it") -> list[Any]:
    """A reply of reasoning, text and a call that fails in the end."""
    opened = [
        BlockStart(0, "reasoning"), ReasoningDelta(0, "hm"), BlockStart(1, "text"), TextDelta(1, words),
    ]  # fmt: skip
    closed = [BlockEnd(0, {"type": "reasoning", "text": "hm"}), BlockEnd(1, {"type": "text", "text": words})]
    block = {"type": "tool-call", "id": "c1", "name": "write", "arguments": "{}"}
    call = [BlockStart(2, "tool-call"), ToolCallDelta(2, "c1", "write", "{}"), BlockEnd(2, block)]
    usage = UsageChunk({"inputTokens": 3, "outputTokens": 2})
    failure = {"message": "model stopped", "code": code}
    return [
        *opened,
        *(closed + call if is_closed else []),
        usage,
        Finish({"kind": "error", "failure": failure}),
    ]


@pytest.mark.parametrize("code", ["CONTENT_FILTER", "REFUSAL", "PAUSE_TURN"])
@aio
async def test_what_can_be_read_of_a_refused_reply_is_kept_and_marked(code: str) -> None:
    async with loop(broken(code), text("better"), config=KEEP) as it:
        agent = await it.agent()
        await it.prompt(agent, "tell me")

        assert short(agent.session).endswith("chunks request/usage assistant/message step/end turn/end")
        (row,) = data_of(agent.session, "assistant/message")
        assert list(row) == ["turn", "step", "message", "interrupted", "usage"]
        assert row["message"]["content"] == (
            {"type": "reasoning", "text": "hm"}, {"type": "text", "text": "a page of it"},
        )  # fmt: skip
        assert "replayState" not in row["message"]["source"]
        [end] = ends(agent.session)
        assert (end["kind"], end["error"]["code"]) == ("error", code)
        assert verify(agent.session).findings == ()

        await it.prompt(agent, "and now?")
        assert texts_of(it.model.requests[-1])[-2:] == ["assistant: hm | a page of it", "user: and now?"]


@aio
async def test_what_was_kept_is_there_when_the_session_is_resumed_and_forked(tmp_path: Path) -> None:
    rows: list[Any] = [
        (session_persistence_jsonl, {"root": str(tmp_path / "sessions")}),
        (session_checkpoint_policy, {}),
    ]
    said = ["user: tell me", "assistant: hm | a page of it", "user: and now?"]
    async with loop(broken("REFUSAL"), config=KEEP, rows=rows) as it:
        await it.prompt((await it.create(session_id="s", cwd=str(tmp_path))).agent, "tell me")
    async with loop(text("better"), config=KEEP, rows=rows) as it:
        options = AgentOptions(provider="p", model="m")
        agent = (await it.ctx.use(AGENTS).resume(ResumeAgent(session_id="s", options=options))).agent
        await it.prompt(agent, "and now?")
        child, _ = it.sessions.fork(agent.session)

        assert texts_of(it.model.requests[0])[-3:] == said
        assert child.derive_messages() == agent.session.derive_messages()
        assert [row["interrupted"] for row in data_of(child, "assistant/message")[:1]] == [True]
        assert verify(agent.session).findings == verify(child).findings == ()


@aio
async def test_what_was_kept_is_summarised_like_any_other_reply() -> None:
    rows: list[Any] = [(token_meter, {}), (compaction_basic, {"auto": False})]
    page = "a page of it " * 200
    replies = [broken("REFUSAL", words=page), text("better"), text("the gist"), text("on")]
    async with loop(*replies, config=KEEP, rows=rows) as it:
        agent = await it.agent()
        await it.prompt(agent, "tell me")
        await it.prompt(agent, "and now?")
        done = await it.ctx.use(COMPACTION).compact_now(agent)
        await it.prompt(agent, "go on")

        assert done is not None and done.shadowed == 3
        assert f"assistant: hm | {page}" in texts_of(it.model.requests[2]), "the summary is of it too"
        assert page not in repr(it.model.requests[3].messages)
        assert verify(agent.session).findings == ()


@aio
async def test_nothing_is_kept_unless_it_is_asked_for() -> None:
    async with loop(broken("CONTENT_FILTER")) as it:
        agent = await it.agent()
        await it.prompt(agent, "tell me")

        assert data_of(agent.session, "assistant/message") == []


@pytest.mark.parametrize(
    "reply",
    [
        broken("CONTENT_FILTER", is_closed=False),
        broken("SERVER"),
        broken("INSUFFICIENT_SYSTEM_RESOURCE"),
        broken("CONTEXT_WINDOW_EXCEEDED"),
        [Finish({"kind": "error", "failure": {"message": "m", "code": "CONTENT_FILTER"}})],
    ],
    ids=["a stream that broke", "a fault", "a retryable stop", "a full window", "nothing was said"],
)
@aio
async def test_a_reply_that_broke_or_said_nothing_is_not_kept(reply: list[Any]) -> None:
    async with loop(reply, config=KEEP) as it:
        agent = await it.agent()
        await it.prompt(agent, "tell me")

        assert data_of(agent.session, "assistant/message") == []
        assert ends(agent.session)[0]["kind"] == "error"


@aio
async def test_a_stream_that_a_listener_breaks_leaves_no_message() -> None:
    async def breaks(_: LlmRequest, following: Callable[[], AsyncIterator[Chunk]]) -> AsyncIterator[Chunk]:
        async for chunk in following():
            if isinstance(chunk, UsageChunk):
                raise RuntimeError("listener")
            yield chunk

    async with loop(text("a page of it", usage=True), config=KEEP) as it:
        it.ctx.on(LLM_STREAM, breaks)
        agent = await it.agent()
        await it.prompt(agent, "tell me")

        assert data_of(agent.session, "assistant/message") == []
        assert ends(agent.session)[0]["kind"] == "error"
