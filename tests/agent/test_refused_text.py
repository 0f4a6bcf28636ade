"""The text of a reply that the model broke off: kept as an interrupted message where that is asked for."""

from typing import Any

import pytest

from dsh.session.chunk import (
    BlockEnd,
    BlockStart,
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
