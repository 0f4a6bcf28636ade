"""Requests: what their head is made of, which rows say so, and that they equal the fold of the log."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from dsh.agent.contract import (
    AGENT_PRE_STEP,
    AGENT_REQUEST,
    AGENT_REQUEST_ERROR,
    AgentOptions,
    PreStep,
    RequestFailed,
    RequestSeed,
    RetryRequest,
)
from dsh.agent.default_model import ModelSelection
from dsh.agent.failure import InvariantError
from dsh.agent.invariant import mark
from dsh.agent.model_selection import SelectedModel
from dsh.agent.prompt import SYSTEM_PROMPT
from dsh.llm.adapter import EffortInfo, Generation, ModelInfo, ReasoningInfo
from dsh.llm.registry import LLM_STREAM
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.session.log import Session
from dsh.session.message import user_message
from tests.agent.kit import Loop, calls, data_of, ends, failed, loop, text
from tests.aio import aio


async def echo(args: Any, exec: Any) -> str:  # noqa: A002
    return "echoed"


def thinks(it: Loop, default: str = "high") -> None:
    """Let the scripted model offer reasoning efforts."""
    info = ReasoningInfo((EffortInfo("low", "Low"), EffortInfo("high", "High")), default)
    it.model.resolve_model = lambda provider, model: ModelInfo(  # type: ignore[method-assign]
        provider=provider, id=model, name=model, reasoning=info, context_window=500
    )


@aio
async def test_who_registered_a_route_is_held_from_its_first_request_to_the_end_of_the_turn() -> None:
    async with loop(calls(("c1", "look", "{}")), text("done")) as it:
        owner = it.llm.owner_of("p")
        assert owner is not None
        seen: list[str] = []

        async def look(args: Any, exec: Any) -> str:  # noqa: A002
            seen.append(owner.held)
            return "looked"

        it.tool("look", look)
        agent = await it.agent()

        def enters(step: PreStep, following: Callable[[], Any]) -> Any:
            seen.append(owner.held)
            return following()

        agent.ctx.on(AGENT_PRE_STEP, enters)
        await it.prompt(agent, "go")
        held = "a turn that uses model route p is running"
        assert [*seen, owner.held] == ["", held, held, ""]
        assert it.llm.owner_of("nobody") is None


@aio
async def test_a_turn_that_fails_lets_go_of_its_route() -> None:
    async with loop(failed("SERVER")) as it:
        owner = it.llm.owner_of("p")
        agent = await it.agent()
        await it.prompt(agent, "go")
        assert ends(agent.session)[0]["kind"] == "error"
        assert owner is not None
        assert owner.held == ""


@aio
async def test_the_first_header_is_initial_and_an_unchanged_one_is_not_written_again() -> None:
    async with loop(calls(("c1", "echo", "{}")), text("done")) as it:
        it.tool("echo", echo)
        agent = await it.agent()
        await it.prompt(agent, "go")
        await it.prompt(agent, "again")
        (row,) = data_of(agent.session, "request/header")
        assert list(row) == ["header", "reason"]
        assert row["reason"] == "initial"
        assert row["header"] == {
            "config": {"provider": "p", "model": "m", "maxTokens": 100},
            "adapterDefaults": {"maxTokens": True},
            "tools": (
                {
                    "name": "echo",
                    "description": "echo",
                    "parameters": row["header"]["tools"][0]["parameters"],
                },
            ),
        }
        assert data_of(agent.session, "request/context") == [
            {"provider": "p", "model": "m", "contextWindow": 1000}
        ]


@aio
async def test_a_new_tool_or_section_changes_the_header() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        await it.prompt(agent, "a")
        it.tool("echo", echo)
        await it.prompt(agent, "b")
        it.ctx.use(SYSTEM_PROMPT).section("x", 1, "be brief")
        await it.prompt(agent, "c")
        assert [d["reason"] for d in data_of(agent.session, "request/header")] == [
            "initial",
            "change",
            "change",
        ]
        assert it.model.requests[-1].system == "be brief"


@aio
async def test_what_the_adapter_filled_in_is_asked_for_again_and_not_frozen() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        await it.prompt(agent, "a")
        it.model.resolve_model = lambda provider, model: ModelInfo(  # type: ignore[method-assign]
            provider=provider, id=model, name=model, default_max_tokens=50
        )
        await it.prompt(agent, "b")
        rows = data_of(agent.session, "request/header")
        assert [row["header"]["config"].get("maxTokens") for row in rows] == [100, 50]
        contexts = data_of(agent.session, "request/context")
        assert [c.get("contextWindow") for c in contexts] == [1000, None]


@aio
async def test_an_effort_that_the_adapter_filled_in_is_asked_for_again() -> None:
    async with loop(text("done")) as it:
        thinks(it)
        agent = await it.agent()
        await it.prompt(agent, "a")
        await it.prompt(agent, "b")
        thinks(it, "low")
        await it.prompt(agent, "c")
        assert [r.config.reasoning_effort for r in it.model.requests] == ["high", "high", "low"]
        rows = [row["header"] for row in data_of(agent.session, "request/header")]
        assert [row["adapterDefaults"] for row in rows] == [{"reasoningEffort": True}] * 2


@aio
async def test_a_cancel_right_after_the_adapter_is_ready_logs_no_header() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        prepare = it.model.prepare

        async def and_cancelled(provider: str, model: str) -> Generation:
            it.soon(lambda: it.soon(lambda: agent.cancel({"kind": "user"})))
            return await prepare(provider, model)

        it.model.prepare = and_cancelled  # type: ignore[method-assign]
        await it.prompt(agent, "a")
        assert ends(agent.session) == [{"kind": "aborted", "reason": {"kind": "user"}}]
        assert data_of(agent.session, "request/header") == []


@aio
async def test_the_same_values_of_another_origin_are_a_change() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        await it.prompt(agent, "a")

        async def explicit(seed: RequestSeed, following: Any) -> LlmCallConfig:
            config: LlmCallConfig = await following()
            return msgspec.structs.replace(config, max_tokens=100)

        it.ctx.on(AGENT_REQUEST, explicit)
        await it.prompt(agent, "b")
        rows = data_of(agent.session, "request/header")
        assert [("adapterDefaults" in row["header"]) for row in rows] == [True, False]


@aio
async def test_an_effort_that_was_chosen_travels_until_it_is_taken_away() -> None:
    async with loop(text("done")) as it:
        thinks(it)
        agent = await it.agent()

        async def low(seed: RequestSeed, following: Any) -> LlmCallConfig:
            config: LlmCallConfig = await following()
            return msgspec.structs.replace(config, reasoning_effort="low")

        listening = it.ctx.on(AGENT_REQUEST, low)
        await it.prompt(agent, "a")
        await listening()
        await it.prompt(agent, "b")
        assert [r.config.reasoning_effort for r in it.model.requests] == ["low", "low"]


@aio
async def test_an_unsupported_effort_ends_the_turn_before_a_header_is_logged() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        it.ctx.on(AGENT_REQUEST, SelectedModel(ModelSelection("p", "m", "max")).on_request)
        await it.prompt(agent, "a")
        assert ends(agent.session)[0]["error"]["code"] == "UNSUPPORTED_REASONING_EFFORT"
        assert data_of(agent.session, "request/header") == []


@aio
async def test_a_route_without_adapter_fails_as_the_stream_would() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent(options=AgentOptions(provider="nowhere", model="m", max_tokens=7))
        asked: list[RequestFailed] = []

        async def look(failure: RequestFailed, following: Any) -> Any:
            asked.append(failure)
            return await following()

        it.ctx.on(AGENT_REQUEST_ERROR, look)
        await it.prompt(agent, "a")
        assert ends(agent.session)[0]["error"]["code"] == "NO_ADAPTER"
        assert [(f.provider, f.retry_policy, f.failure.code) for f in asked] == [
            ("nowhere", None, "NO_ADAPTER")
        ]
        assert data_of(agent.session, "request/header")[0]["header"] == {
            "config": {"provider": "nowhere", "model": "m", "maxTokens": 7}
        }
        assert data_of(agent.session, "request/context") == [{"provider": "nowhere", "model": "m"}]


@aio
async def test_a_retry_stays_in_its_step_and_cites_only_its_own_chunks() -> None:
    async with loop(failed("SERVER"), text("done")) as it:
        agent = await it.agent()
        last_rows: list[str] = []

        async def retry(failure: RequestFailed, following: Any) -> RetryRequest:
            last_rows.append(agent.session.event(agent.session.length - 1).data["chunk"]["type"])
            assert failure.retry_policy is not None
            return {"kind": "retry"}

        it.ctx.on(AGENT_REQUEST_ERROR, retry)
        await it.prompt(agent, "go")
        assert last_rows == ["finish"]
        assert [d["step"] for d in data_of(agent.session, "step/start")] == [1]
        reply = next(e for e in agent.session.events() if e.type == "assistant/message")
        assert reply.sources is not None
        assert (
            len(reply.sources) == len([1 for e in agent.session.events() if e.type == "assistant/chunk"]) - 1
        )
        assert data_of(agent.session, "request/header")[0]["reason"] == "initial"
        assert len(data_of(agent.session, "request/header")) == 1


@aio
async def test_an_adapter_that_raises_reaches_the_retry_as_unknown() -> None:
    def explode() -> None:
        raise ValueError("bad wire")

    async with loop([explode]) as it:
        agent = await it.agent()
        asked: list[RequestFailed] = []

        async def look(failure: RequestFailed, following: Any) -> Any:
            asked.append(failure)
            return await following()

        it.ctx.on(AGENT_REQUEST_ERROR, look)
        await it.prompt(agent, "go")
        assert [(f.failure.message, f.failure.code) for f in asked] == [("bad wire", "UNKNOWN")]


@aio
async def test_a_model_switch_never_splits_prompt_and_request_of_a_step() -> None:
    async with loop(text("done"), prompt={"persona": "you are {{model}} of {{provider}}"}) as it:
        selected = SelectedModel(ModelSelection("p", "one"))
        agent = await it.agent(setup=selected.install)

        async def switch(seed: RequestSeed, following: Any) -> LlmCallConfig:
            selected.select(ModelSelection("p", "two"))
            config: LlmCallConfig = await following()
            return config

        it.ctx.on(AGENT_REQUEST, switch, prepend=True)
        await it.prompt(agent, "a")
        await it.prompt(agent, "b")
        assert [(r.config.model, r.system) for r in it.model.requests] == [
            ("one", "you are one of p"),
            ("two", "you are two of p"),
        ]
        assert agent.options.model == "m"


# -- the invariant ---------------------------------------------------------------------------------


async def recorded(it: Loop, agent: Any) -> list[tuple[LlmRequest, list[Any]]]:
    """Every request with the log as it was when it left."""
    out: list[tuple[LlmRequest, list[Any]]] = []

    def note(request: LlmRequest, following: Any) -> Any:
        out.append((request, [event.to_json() for event in agent.session.events()]))
        return following()

    it.ctx.on(LLM_STREAM, note)
    return out


@aio
async def test_every_request_can_be_rebuilt_from_the_log_before_it() -> None:
    replies = (calls(("c1", "echo", "{}")), failed("SERVER"), text("one"), text("two"))
    async with loop(*replies) as it:
        it.tool("echo", echo)
        it.ctx.use(SYSTEM_PROMPT).section("x", 1, "be brief")
        it.ctx.use(SYSTEM_PROMPT).context("a:fact", 1, lambda at: "a fact")
        agent = await it.agent()
        log = await recorded(it, agent)

        async def retry(failure: RequestFailed, following: Any) -> RetryRequest:
            return {"kind": "retry"}

        it.ctx.on(AGENT_REQUEST_ERROR, retry)
        await it.prompt(agent, "go")
        agent.inject(user_message("note"))
        await it.prompt(agent, "again")
        assert len(log) == 4
        for request, prefix in log:
            rebuilt = Session.seeded(agent.session.header, prefix)
            header = rebuilt.request_header
            assert header is not None
            assert request.messages == rebuilt.derive_messages()
            assert request.config.to_json() == header["config"]
            assert (request.system, len(request.tools)) == (header["system"], len(header["tools"]))


@aio
async def test_a_forged_request_ends_the_turn_before_anything_is_sent() -> None:
    async with loop(text("done")) as it:
        agent = await it.agent()
        await it.prompt(agent, "go")
        forged = mark(msgspec.structs.replace(it.model.requests[0]))
        with pytest.raises(InvariantError, match="outside any step"):
            it.llm.stream(forged)
        stranger = mark(msgspec.structs.replace(it.model.requests[0], session_id="nobody"))
        with pytest.raises(InvariantError, match="not live"):
            it.llm.stream(stranger)
