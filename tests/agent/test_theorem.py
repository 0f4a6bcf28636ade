"""The theorem of the log: every request that left is rebuilt, byte by byte, from the events before it."""

from pathlib import Path
from typing import Any

import pytest

from dsh.agent.contract import (
    AGENT_REQUEST,
    AGENT_REQUEST_ERROR,
    AGENT_TURN_STOPPING,
    Agent,
    AgentOptions,
    RequestFailed,
    RequestSeed,
    ResumeAgent,
    RetryRequest,
    TurnStopping,
)
from dsh.agent.prompt import SYSTEM_PROMPT
from dsh.agent.registry import AGENTS
from dsh.llm.request import LlmCallConfig
from dsh.plugins import session_checkpoint_policy, session_persistence_jsonl
from dsh.session.chunk import BlockEnd, BlockStart, Finish, TextDelta
from dsh.session.message import user_message
from dsh.session.verify.log import verify
from tests.agent.kit import Loop, calls, data_of, ends, failed, loop, text
from tests.agent.recorder import prove, record
from tests.aio import aio


async def look(args: Any, exec: Any) -> str:  # noqa: A002
    return "looked"


async def silent(args: Any, exec: Any) -> str:  # noqa: A002
    return ""


async def broken(args: Any, exec: Any) -> str:  # noqa: A002
    raise ValueError("half \ud83d a character")


def equipped(it: Loop) -> None:
    it.tool("look", look)
    it.tool("silent", silent)
    it.tool("broken", broken)
    it.ctx.use(SYSTEM_PROMPT).section("x", 1, "be brief, 한 🏷")
    it.ctx.use(SYSTEM_PROMPT).context("a:fact", 1, lambda at: "a fact")


def always_again(it: Loop) -> None:
    async def again(failure: RequestFailed, following: Any) -> RetryRequest:
        return {"kind": "retry"}

    it.ctx.on(AGENT_REQUEST_ERROR, again)


def shorten(agent: Agent, keep: int) -> None:
    """Put one message in the place of all but the last few."""
    nodes = agent.session.surface_nodes
    surface = {"op": "replace", "start": nodes[0], "end": nodes[-keep - 1]}
    sources = list(nodes[: len(nodes) - keep])
    agent.session.append("user/message", user_message("in short"), surface=surface, sources=sources)


def check(agent: Agent) -> None:
    """What `dsh sessions verify` says of the log: nothing, and it has recomputed every digest."""
    found = verify(agent.session)
    assert [finding.message for finding in found.findings] == []
    assert found.digests == len(data_of(agent.session, "request/digest"))


@aio
async def test_tools_steering_retries_and_notes() -> None:
    replies = (
        calls(("c1", "look", "{}"), ("c2", "silent", "{}"), ("c3", "broken", "{}"), ("c4", "nobody", "{")),
        failed("SERVER"),
        text("one"),
        text("two"),
        text(" \n"),
        text("three"),
    )
    async with loop(*replies) as it:
        equipped(it)
        always_again(it)
        agent = await it.agent()
        sent = record(it)
        steered: list[bool] = []

        async def steer(stopping: TurnStopping) -> None:
            if not steered:
                steered.append(True)
                agent.steer(user_message("and then? \ud83d"))

        it.ctx.on(AGENT_TURN_STOPPING, steer)
        await it.prompt(agent, "go")
        agent.inject(user_message("note"))
        await it.prompt(agent, "")
        await it.prompt(agent, "again")
        assert len(sent) == 6
        for dispatch in sent:
            prove(dispatch)
        digests = data_of(agent.session, "request/digest")
        assert [(d["turn"], d["step"], d["attempt"]) for d in digests] == [
            (1, 1, 1),
            (1, 2, 1),
            (1, 2, 2),
            (1, 3, 1),
            (2, 1, 1),
            (3, 1, 1),
        ]
        check(agent)


@aio
async def test_replacements_between_steps_and_inside_one() -> None:
    replies = (
        calls(("c1", "look", "{}"), ("c2", "look", "{}")),
        text("one"),
        text("two"),
        failed("CONTEXT_OVERFLOW"),
        text("three"),
        text("four"),
    )
    async with loop(*replies) as it:
        equipped(it)
        agent = await it.agent()
        sent = record(it)

        async def recover(failure: RequestFailed, following: Any) -> RetryRequest:
            shorten(agent, 1)
            return {"kind": "retry"}

        it.ctx.on(AGENT_REQUEST_ERROR, recover)
        await it.prompt(agent, "a")
        await it.prompt(agent, "b")
        shorten(agent, 2)
        await it.prompt(agent, "c")
        await it.prompt(agent, "d")
        assert len(sent) == 6
        for dispatch in sent:
            prove(dispatch)


@aio
async def test_a_cut_through_the_calls_of_one_message_is_mended_in_the_request() -> None:
    async with loop(calls(("c1", "look", "{}"), ("c2", "look", "{}")), text("one"), text("two")) as it:
        equipped(it)
        agent = await it.agent()
        sent = record(it)
        await it.prompt(agent, "a")
        shorten(agent, 2)  # the second result stays without its call
        await it.prompt(agent, "b")
        assert len(sent) == 3
        for dispatch in sent:
            prove(dispatch)


@aio
async def test_a_head_that_changes_at_every_request() -> None:
    async with loop(calls(("c1", "look", "{}")), text("one"), text("two")) as it:
        equipped(it)
        agent = await it.agent()
        sent = record(it)
        heat = [0.0]

        async def warmer(seed: RequestSeed, following: Any) -> LlmCallConfig:
            config: LlmCallConfig = await following()
            heat[0] += 0.5
            return LlmCallConfig(
                config.provider, config.model, temperature=heat[0], max_tokens=7, stop=("x", "한")
            )

        it.ctx.on(AGENT_REQUEST, warmer)
        await it.prompt(agent, "a")
        it.tool("later", look)
        await it.prompt(agent, "b")
        assert [dispatch.request.config.temperature for dispatch in sent] == [0.5, 1.0, 1.5]
        for dispatch in sent:
            prove(dispatch)
        check(agent)


@aio
async def test_a_reply_that_was_cut_off_and_a_call_that_never_ended() -> None:
    async with loop() as it:
        equipped(it)
        agent = await it.agent()
        sent = record(it)

        def stop() -> None:
            agent.cancel({"kind": "user"}, keep_inbox=True)

        it.model.replies = [
            [BlockStart(0, "text"), TextDelta(0, "half a"), stop, TextDelta(0, "nswer")],
            [
                BlockStart(0, "text"),
                BlockEnd(0, {"type": "text", "text": ""}),
                stop,
                Finish({"kind": "stop"}),
            ],
            calls(("c1", "stopper", "{}"), ("c2", "look", "{}")),
            text("done"),
        ]

        async def stopper(args: Any, exec: Any) -> str:  # noqa: A002
            stop()
            return "too late"

        it.tool("stopper", stopper)
        for words in ("a", "b", "c", "d"):
            await it.prompt(agent, words)
        assert [end["kind"] for end in ends(agent.session)] == ["aborted", "aborted", "aborted", "completed"]
        assert len(sent) == 4
        for dispatch in sent:
            prove(dispatch)
        check(agent)


@pytest.mark.parametrize("has_loop_died", [False, True])
@aio
async def test_a_session_that_goes_on_in_another_process(tmp_path: Path, has_loop_died: bool) -> None:
    rows = [
        (session_persistence_jsonl, {"root": str(tmp_path / "sessions")}),
        (session_checkpoint_policy, {}),
    ]
    async with loop(calls(("c1", "look", "{}")), text("one"), rows=rows) as it:
        equipped(it)
        handle = await it.create(session_id="s", cwd=str(tmp_path))
        await it.prompt(handle.agent, "a")
        if has_loop_died:
            handle.agent.session.append("turn/start", {"turn": 2})
            handle.agent.session.append("step/start", {"turn": 2, "step": 1})
        await it.sessions.flush(handle.agent.session)
    async with loop(calls(("c2", "look", "{}")), text("two"), text("three"), rows=rows) as it:
        equipped(it)
        sent = record(it)
        options = AgentOptions(provider="p", model="m")
        resumed = await it.ctx.use(AGENTS).resume(ResumeAgent(session_id="s", options=options))
        await it.prompt(resumed.agent, "b")
        await it.prompt(resumed.agent, "c")
        assert len(sent) == 3
        for dispatch in sent:
            prove(dispatch)
        check(resumed.agent)
