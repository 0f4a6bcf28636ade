"""Row `llm-scripted`: a list of replies is the model of a real loop."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dsh.agent.contract import AgentOptions
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.llm.registry import LLM
from dsh.llm.script.error import ScriptError
from dsh.llm.script.service import MODEL_SCRIPT
from dsh.plugins import llm, llm_retry, llm_scripted
from tests.agent.kit import Loop, data_of, ends, loop, short
from tests.aio import aio, aio_in_virtual_time

ROUTE = AgentOptions(provider="scripted", model="script")


@asynccontextmanager
async def scripted(*replies: Any, **config: Any) -> AsyncIterator[Loop]:
    row = {"replies": list(replies), **config}
    async with loop(rows=[(llm_retry, {}), (llm_scripted, row)]) as it:

        async def add(_args: Any, _run: Any) -> str:
            return "seven"

        it.tool("add", add)
        yield it


@aio
async def test_replies_drive_a_turn_with_tools() -> None:
    call = {"reasoning": "I add.", "tools": [{"name": "add"}], "usage": {"inputTokens": 5, "outputTokens": 1}}
    async with scripted(call, {"expect": "seven", "text": "it is {{fromRequest:sev..}}"}) as it:
        agent = await it.agent(options=ROUTE)
        await it.prompt(agent, "add them")
        log = agent.session
        it.ctx.use(MODEL_SCRIPT).assert_consumed()

    assert ends(log) == [{"kind": "completed"}]
    first, second = data_of(log, "assistant/message")
    assert [block["type"] for block in first["message"]["content"]] == ["reasoning", "tool-call"]
    assert first["usage"] == {"inputTokens": 5, "outputTokens": 1}
    assert second["message"]["content"][0]["text"] == "it is seven"


@aio_in_virtual_time
async def test_an_error_is_retried_as_the_row_says() -> None:
    error = {"error": {"code": "SERVER", "status": 503}}
    policy = {"maxRetries": 1, "retryableCodes": ["SERVER"]}
    async with scripted(error, {"text": "ok"}, error, error, retryPolicy=policy) as it:
        agent = await it.agent(options=ROUTE)
        await it.prompt(agent, "one")
        await it.prompt(agent, "two")
        log = agent.session

    assert len(data_of(log, "llm/retry")) == 2
    assert [end["kind"] for end in ends(log)] == ["completed", "error"]
    assert ends(log)[1]["error"]["status"] == 503


@aio
async def test_a_missed_expectation_ends_the_turn_at_once_by_name() -> None:
    async with scripted({"expect": "nowhere", "text": "x"}) as it:
        agent = await it.agent(options=ROUTE)
        await it.prompt(agent, "one")
        log = agent.session

    assert "llm/retry" not in short(log)
    assert ends(log)[0]["error"]["code"] == "SCRIPT_UNEXPECTED_REQUEST"


@aio
async def test_a_script_that_is_too_short_or_too_long_is_told() -> None:
    async with scripted({"text": "a"}, {"text": "b"}) as it:
        agent = await it.agent(options=ROUTE)
        await it.prompt(agent, "one")
        with pytest.raises(ScriptError, match=r"1 of 2 replies .* replies\[1\]"):
            it.ctx.use(MODEL_SCRIPT).assert_consumed()
        await it.prompt(agent, "two")
        await it.prompt(agent, "three")
        log = agent.session

    assert [end["kind"] for end in ends(log)] == ["completed", "completed", "error"]
    assert ends(log)[2]["error"]["code"] == "SCRIPT_EXHAUSTED"


@pytest.mark.parametrize(("prompts", "told"), [([], 0), (["one"], 1), (["one", "two"], 0)])
@aio
async def test_what_is_left_is_told_at_the_end_of_a_run_that_asked_for_some(
    caplog: pytest.LogCaptureFixture, prompts: list[str], told: int
) -> None:
    with caplog.at_level(logging.WARNING, "dsh"):
        async with scripted({"text": "a"}, {"text": "b"}) as it:
            agent = await it.agent(options=ROUTE)
            for prompt in prompts:
                await it.prompt(agent, prompt)

    assert [record.getMessage() for record in caplog.records] == [
        "1 of 2 replies were not played, the first is at replies[1]"
    ] * told


@aio
async def test_the_route_and_its_models_are_the_rows(caplog: pytest.LogCaptureFixture) -> None:
    model = {"id": "big", "name": "Big", "contextWindow": 9000, "maxTokens": 7, "efforts": ["low", "high"]}
    with caplog.at_level(logging.WARNING, "dsh"):
        async with scripted(
            {"text": "x"}, provider="mine", models=[{**model, "defaultEffort": "high"}]
        ) as it:
            agent = await it.agent(options=AgentOptions(provider="mine", model="big"))
            await it.prompt(agent, "one")
            log = agent.session
            [info] = it.llm.list_models("mine")

    assert (info.name, info.context_window, info.default_max_tokens) == ("Big", 9000, 7)
    config = data_of(log, "request/header")[0]["header"]["config"]
    assert dict(config) == {"provider": "mine", "model": "big", "reasoningEffort": "high", "maxTokens": 7}
    assert caplog.records == []


@aio
async def test_a_file_is_read_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("r.yml").write_text("- text: from a file\n")
    async with loop(rows=[(llm_scripted, {"file": "r.yml"})]) as it:
        agent = await it.agent(options=ROUTE)
        await it.prompt(agent, "one")

        assert (
            data_of(agent.session, "assistant/message")[0]["message"]["content"][0]["text"] == "from a file"
        )
        assert [info.id for info in it.llm.list_models("scripted")] == ["script"]


async def failure_of(config: Mapping[str, Any]) -> CompositionError:
    ctx = Context()
    try:
        await ctx.plugin(llm, {})
        with pytest.raises(CompositionError) as caught:
            await ctx.plugin(llm_scripted, dict(config))
        assert not ctx.use(LLM).list_providers()
        return caught.value
    finally:
        await ctx.dispose()


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "either file or replies"),
        ({"file": "a", "replies": []}, "either file or replies"),
        ({"file": "none.yml"}, "none.yml"),
        ({"file": "~nobody-of-this-name/r.yml"}, "nobody has the home"),
        ({"replies": [{"txt": "x"}]}, "unknown key 'txt' (at replies.0)"),
        ({"replies": ["x"]}, "expected object but got string (at replies.0)"),
        ({"replies": [], "models": [{"id": "a"}, {"id": "a"}]}, "once each"),
        ({"replies": [], "models": [{"id": "a", "efforts": ["x", "x"]}]}, "once each"),
        ({"replies": [], "deltaChars": 0}, ">= 1"),
    ],
)
@aio
async def test_what_is_wrong_with_the_row_is_told_when_it_is_mounted(
    config: dict[str, Any], told: str
) -> None:
    error = await failure_of(config)

    assert told in str(error)
    assert error.exit_code == 3


@aio
async def test_the_route_goes_with_the_row() -> None:
    ctx = Context()
    await ctx.plugin(llm, {})
    fiber = ctx.plugin(llm_scripted, {"replies": []})
    await fiber
    assert [info.provider for info in ctx.use(LLM).list_providers()] == ["scripted"]

    await fiber.dispose()

    assert not ctx.use(LLM).list_providers()
    assert ctx.get(MODEL_SCRIPT) is None
    await ctx.dispose()
