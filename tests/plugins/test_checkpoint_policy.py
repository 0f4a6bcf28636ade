"""Row `session-checkpoint-policy` in a whole loop: intent is on disk before its effect."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from dsh.kernel import Context, ScopeTarget
from dsh.llm.registry import LLM_STREAM
from dsh.persistence.jsonl.reader import read_log
from dsh.persistence.view import build_view
from dsh.plugins import session, session_checkpoint_policy, session_persistence_jsonl, tools
from dsh.session.chunk import Chunk, Finish
from dsh.session.log import Session
from dsh.session.store import SESSION_FLUSH, SESSIONS
from dsh.tools.execution import ToolExecution
from dsh.tools.registry import TOOLS
from tests.agent.kit import calls, data_of, ends, loop, text
from tests.aio import aio
from tests.llm.build import request
from tests.tools.kit import StandInAgent, call, code, tool
from tests.tools.kit import text as text_of

POLICY: tuple[Any, dict[str, Any]] = (session_checkpoint_policy, {})


def durable(root: Path) -> list[str]:
    """Types of the events that another process would find now."""
    return [event.type for path in root.rglob("session.jsonl.zstd") for event in _stored(path)]


def _stored(path: Path) -> list[Any]:
    view = build_view(read_log(path))
    return list(view.events(0, view.stored_length))


@aio
async def test_a_request_finds_its_prompt_on_disk_and_a_tool_its_call(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    rows = [(session_persistence_jsonl, {"root": str(tmp_path), "writeBatchMaxDelayMs": 60_000}), POLICY]

    def look() -> None:
        seen.append(durable(tmp_path))

    async with loop([look, *calls(("c1", "probe", "{}"))], [look, *text("done")], rows=rows) as running:

        async def probe(_: Any, __: ToolExecution) -> str:
            look()
            return "ok"

        running.tool("probe", probe)
        agent = await running.agent()
        await running.prompt(agent, "go")
        assert ends(agent.session) == [{"kind": "completed"}]

    first, in_tool, second = seen
    assert first[-1] == "request/digest"
    assert "user/message" in first
    assert in_tool[-1] == "tool/call"
    assert "assistant/message" in in_tool
    assert second.count("tool/result") == 1


@aio
async def test_a_barrier_that_fails_means_no_model_call_and_no_tool_run() -> None:
    async with loop(rows=[POLICY]) as running:

        def full(_: Session) -> None:
            raise OSError("no space left")

        running.ctx.on(SESSION_FLUSH, full)
        agent = await running.agent()
        await running.prompt(agent, "go")

        assert running.model.requests == []
        (end,) = ends(agent.session)
        assert end["kind"] == "error"
        assert "no space left" in end["error"]["message"]


@aio
async def test_a_tool_whose_call_is_not_durable_does_not_run() -> None:
    async with loop(calls(("c1", "probe", "{}")), text("done"), rows=[POLICY]) as running:
        ran: list[int] = []

        async def probe(_: Any, __: ToolExecution) -> str:
            ran.append(1)
            return "ok"

        def full(log: Session) -> None:
            if log.length and log.event(log.length - 1).type == "tool/call":
                raise OSError("no space left")

        running.tool("probe", probe)
        running.ctx.on(SESSION_FLUSH, full)
        agent = await running.agent()
        await running.prompt(agent, "go")

        (result,) = data_of(agent.session, "tool/result")
        assert ran == []
        assert "no space left" in result["message"]["content"][0]["content"][0]["text"]


async def on_tools(ctx: Context) -> StandInAgent:
    """The rows a tool call needs, and an agent whose session is live."""
    await ctx.plugin(session)
    await ctx.plugin(tools)
    await ctx.plugin(session_checkpoint_policy)
    agent = StandInAgent(ctx)
    store = ctx.use(SESSIONS)
    store.enter(agent.session)
    store.announce(agent.session)
    return agent


@aio
async def test_a_call_cancelled_during_its_barrier_was_never_dispatched() -> None:
    ctx = Context()
    agent = await on_tools(ctx)
    gate = asyncio.Event()

    async def slow(_: Session) -> None:
        await gate.wait()

    ctx.on(SESSION_FLUSH, slow)
    ctx.use(TOOLS).register(tool("t"))
    asked = call(agent=agent)
    running = asyncio.create_task(ctx.use(TOOLS).run(asked))
    await asyncio.sleep(0.01)
    asked.signal.cancel({"kind": "user"})

    result = await running
    gate.set()
    await asyncio.sleep(0)

    assert code(result) == "ABORTED_BEFORE_DISPATCH"
    assert "before dispatch" in text_of(result)
    await ctx.dispose()


@aio
async def test_nested_calls_and_calls_without_a_live_session_have_no_barrier() -> None:
    ctx = Context()
    agent = await on_tools(ctx)
    flushed: list[str] = []
    ctx.on(SESSION_FLUSH, lambda log: flushed.append(log.id))
    registry = ctx.use(TOOLS)
    registry.register(tool("t"))

    for asked in (
        call(agent=agent, parent=object(), root_call_id="c0"),
        call(),
        call(agent=StandInAgent(ctx, "not-live")),
    ):
        assert not (await registry.run(asked)).is_error
    assert flushed == []

    assert not (await registry.run(call(agent=agent))).is_error
    assert flushed == ["a1"]
    await ctx.dispose()


@aio
async def test_the_stream_is_not_even_made_before_its_first_item_is_asked_for() -> None:
    ctx = Context()
    agent = await on_tools(ctx)
    order: list[str] = []
    ctx.on(SESSION_FLUSH, lambda log: order.append("flush"))

    def inner() -> AsyncIterator[Chunk]:
        order.append("made")

        async def chunks() -> AsyncIterator[Chunk]:
            try:
                yield Finish({"kind": "stop"})
                yield Finish({"kind": "stop"})
            finally:
                order.append("closed")

        return chunks()

    stream = ctx.waterfall(LLM_STREAM, request(session_id=agent.id), inner, subject=ScopeTarget(agent))
    assert order == []
    await anext(stream)
    assert order == ["flush", "made"]
    await stream.aclose()  # type: ignore[attr-defined]
    assert order == ["flush", "made", "closed"]

    order.clear()
    for plain in (request(), request(session_id="not-live")):
        ctx.waterfall(LLM_STREAM, plain, inner, subject=ScopeTarget(None))
    assert order == ["made", "made"]
    await ctx.dispose()
