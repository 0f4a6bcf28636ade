"""Row `session-title-llm`: what the model is asked, within which limits; what a failure costs: the title."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dsh.agent.contract import Agent
from dsh.capabilities.titles import TITLES, SessionTitleError
from dsh.errors import CompositionError
from dsh.llm.failure import LlmError
from dsh.llm.registry import LLM_STREAM
from dsh.llm.request import LlmRequest
from dsh.plugins import session_title, session_title_llm
from tests.agent.kit import (
    Loop,
    Reply,
    ScriptedModel,
    calls,
    data_of,
    failed,
    loop,
    short,
    text,
    thought,
    until,
)
from tests.aio import aio, aio_in_virtual_time

TITLE = {"fallbackMaxWords": 5, "fallbackMaxBytes": 40, "maxTitleBytes": 80}


class Titled:
    """A running loop, the model that is asked for titles, and what came of it."""

    def __init__(self, it: Loop, model: ScriptedModel, agent: Agent) -> None:
        self.it, self.model, self.agent = it, model, agent
        self.warnings: list[str] = []
        it.ctx.export_logs(lambda entry: self.warnings.append(entry.text))

    async def prompt(self, words: str) -> None:
        await self.it.prompt(self.agent, words)
        for _ in range(20):
            await asyncio.sleep(0)

    @property
    def titles(self) -> list[tuple[str, str]]:
        rows = data_of(self.agent.session, "session/title")
        return [(row["title"], row["source"]["kind"]) for row in rows]

    @property
    def asked(self) -> list[Any]:
        return data_of(self.agent.session, "session/title-llm-request")


@asynccontextmanager
async def titled(*replies: Reply, **config: Any) -> AsyncIterator[Titled]:
    config.setdefault("provider", "titles")
    config.setdefault("model", "small")
    chosen = {key: value for key, value in config.items() if value is not None}
    rows = [(session_title, TITLE), (session_title_llm, chosen)]
    async with loop(text("done"), rows=rows) as it:
        model = ScriptedModel(*(replies or (text("Port the parser"),)))
        it.llm.register_adapter(["titles"], model)
        yield Titled(it, model, await it.agent())


@aio
async def test_a_model_is_asked_once_and_its_title_replaces_the_fallback() -> None:
    async with titled() as it:
        await it.prompt("port the parser to rust")
        await it.prompt("and test it")

        assert it.titles == [("port the parser to rust", "fallback"), ("Port the parser", "provider")]
        last = it.agent.session.last("session/title")
        assert last is not None
        assert dict(last.data["source"]) == {
            "kind": "provider",
            "provider": "session-title-first-prompt-llm",
            "model": {"provider": "titles", "model": "small"},
        }
        assert len(it.model.requests) == 1
        assert it.warnings == []


@aio
async def test_the_request_is_logged_before_it_is_sent_as_it_is_sent() -> None:
    at_dispatch: list[str] = []
    async with titled() as it:
        it.model.replies = [[lambda: at_dispatch.append(short(it.agent.session)), *text("Port")]]
        await it.prompt('port "the" parser\nto 漢')

        [request], [logged] = it.model.requests, it.asked
        assert "session/title-llm-request" in at_dispatch[0]
        assert (request.purpose, request.session_id) == ("session-title", it.agent.id)
        assert (request.config.provider, request.config.model, request.config.max_tokens) == (
            "titles",
            "small",
            64,
        )
        assert request.tools == ()
        assert "5 words" in str(request.system)
        assert "10 characters" in str(request.system)
        [message] = request.messages
        assert dict(message["source"]) == {"kind": "plugin", "plugin": "dsh-session-title-llm"}
        question = message["content"][0]["text"]  # type: ignore[typeddict-item]
        [prompt] = json.loads(question[question.index("[") :])
        assert prompt == {"seq": logged["messageSeqs"][0], "text": 'port "the" parser\nto 漢'}
        assert dict(it.agent.session.event(prompt["seq"]).data["source"]) == {"kind": "user"}
        assert logged == {
            "titleProvider": "session-title-first-prompt-llm",
            "messageSeqs": (prompt["seq"],),
            "route": {"provider": "titles", "model": "small"},
            "system": request.system,
            "messages": (message,),
            "maxTokens": 64,
        }


@aio
async def test_without_a_model_of_its_own_the_sessions_is_asked() -> None:
    async with titled(provider=None, model=None) as it:
        await it.prompt("go")

        assert it.asked[0]["route"] == {"provider": "p", "model": "m"}
        assert it.titles[-1] == ("done", "provider")


@aio
async def test_the_turn_neither_waits_for_a_title_nor_shares_its_messages() -> None:
    gate = asyncio.Event()
    async with titled([gate.wait, *text("Late")]) as it:
        await it.prompt("go")
        assert short(it.agent.session).endswith("turn/end")
        assert it.titles == [("go", "fallback")]

        gate.set()
        await until(lambda: len(it.titles) == 2)
        await it.prompt("more")
        assert all("JSON array" not in str(request.messages) for request in it.it.model.requests)


@pytest.mark.parametrize(
    ("reply", "problem"),
    [
        (text("cut off", finish="max-tokens"), "ended with max-tokens"),
        (text("no", finish="content-filter"), "ended with content-filter"),
        (calls(("c1", "bash", "{}")), "ended with tool-calls"),
        (calls(("c1", "bash", "{}"), finish="stop"), "calls a tool"),
        (text(" \n "), "holds no text"),
        ([*thought("hm"), *text("", finish="stop")[-1:]], "holds no text"),
        (text("\u200b\u2060"), "nothing that can be shown"),
        (failed("AUTH", "wrong key"), "wrong key"),
    ],
)
@aio
async def test_a_reply_that_is_no_title_costs_the_title_and_is_told_once(reply: Reply, problem: str) -> None:
    async with titled(reply) as it:
        await it.prompt("go on")

        assert it.titles == [("go on", "fallback")]
        [warning] = it.warnings
        assert "keeps its title" in warning
        assert problem in warning
        assert len(it.asked) == 1
        assert len(it.model.requests) == 1


@aio_in_virtual_time
async def test_failures_that_may_pass_are_retried_without_rows() -> None:
    async with titled(failed("SERVER"), failed("RATE_LIMIT"), text("At last")) as it:
        await it.prompt("go")
        await asyncio.sleep(30)

        assert it.titles[-1] == ("At last", "provider")
        assert len(it.model.requests) == 3
        assert len(it.asked) == 1
        assert "llm/retry" not in short(it.agent.session)


@aio_in_virtual_time
async def test_a_model_that_is_too_slow_costs_the_title_and_its_stream_is_closed() -> None:
    async with titled([lambda: asyncio.sleep(1000), *text("Late")], timeoutMs=2000) as it:
        await it.prompt("go")
        await asyncio.sleep(10)

        assert it.titles == [("go", "fallback")]
        [warning] = it.warnings
        assert "gave no title within 2000 ms" in warning
        assert it.model.closed == 1


@aio_in_virtual_time
async def test_the_time_of_retries_counts() -> None:
    async with titled(failed("SERVER"), timeoutMs=600) as it:
        await it.prompt("go")
        await asyncio.sleep(60)

        assert len(it.model.requests) == 2
        assert "within 600 ms" in it.warnings[0]


@aio_in_virtual_time
async def test_a_timeout_has_a_code() -> None:
    async with titled([lambda: asyncio.sleep(1000), *text("x")], timeoutMs=5) as it:
        await it.it.prompt(it.agent, "go")
        with pytest.raises(SessionTitleError) as raised:
            await it.it.ctx.use(TITLES).refresh(it.agent.session)
        assert raised.value.code == "SESSION_TITLE_TIMEOUT"


@pytest.mark.parametrize("more", [0, 1])
@aio
async def test_the_whole_question_is_held_to_the_limit_in_bytes(more: int) -> None:
    prompt = "漢" * 20
    async with titled() as it:
        await it.prompt(prompt)
        size = len(it.model.requests[0].messages[0]["content"][0]["text"].encode())  # type: ignore[typeddict-item]

    async with titled(maxInputBytes=size - more) as it:
        await it.prompt(prompt)
        assert len(it.model.requests) == 1 - more
        assert len(it.asked) == 1 - more
        assert len(it.warnings) == more
        if more:
            assert f"{size} bytes, more than maxInputBytes {size - 1}" in it.warnings[0]


@aio
async def test_a_refresh_asks_about_as_many_prompts_as_fit() -> None:
    async with titled(maxInputBytes=300) as it:
        for words in ("one", "two", "three " * 60, "four"):
            await it.prompt(words)
        title = await it.it.ctx.use(TITLES).refresh(it.agent.session)

        question = it.model.requests[-1].messages[0]["content"][0]["text"]  # type: ignore[typeddict-item]
        asked = json.loads(question[question.index("[") :])
        assert [prompt["text"] for prompt in asked] == ["one", "two"]
        assert title == "Port the parser"
        last = it.agent.session.last("session/title")
        assert last is not None
        assert list(last.data["messageSeqs"]) == [prompt["seq"] for prompt in asked]


@aio
async def test_a_rename_ends_the_call() -> None:
    async with titled([asyncio.Event().wait, *text("Late")]) as it:
        await it.prompt("go")
        it.it.ctx.use(TITLES).rename(it.agent.session, "Mine")
        await until(lambda: it.model.closed)

        assert it.titles[-1] == ("Mine", "user")
        assert it.warnings == []


@aio
async def test_the_end_of_the_program_ends_the_call_without_a_word() -> None:
    async with titled([asyncio.Event().wait, *text("Late")]) as it:
        await it.prompt("go")
        warnings = it.warnings

    assert it.model.closed == 1
    assert warnings == []


@aio
async def test_an_unknown_route_costs_the_title() -> None:
    async with titled(provider="nowhere") as it:
        await it.prompt("go")
        assert it.titles == [("go", "fallback")]
        assert "no adapter serves model route 'nowhere'" in it.warnings[0]
        with pytest.raises(LlmError):
            await it.it.ctx.use(TITLES).refresh(it.agent.session)


@pytest.mark.parametrize(
    "config",
    [
        {"provider": "p"},
        {"model": "m"},
        {"targetWords": 0},
        {"timeoutMs": 0},
        {"maxInputBytes": 1.5},
        {"x": 1},
    ],
)
@aio
async def test_wrong_options_are_refused_at_the_load(config: dict[str, Any]) -> None:
    async with loop(rows=[(session_title, TITLE)]) as it:
        with pytest.raises(CompositionError):
            await it.ctx.plugin(session_title_llm, config)


@pytest.mark.parametrize("more", [0, 1])
@aio
async def test_the_comma_between_two_prompts_counts(more: int) -> None:
    async with titled() as it:
        for words in ("one", "two"):
            await it.prompt(words)
        await it.it.ctx.use(TITLES).refresh(it.agent.session)
        size = len(it.model.requests[-1].messages[0]["content"][0]["text"].encode())  # type: ignore[typeddict-item]

    async with titled(maxInputBytes=size - more) as it:
        for words in ("one", "two"):
            await it.prompt(words)
        await it.it.ctx.use(TITLES).refresh(it.agent.session)
        assert len(it.asked[-1]["messageSeqs"]) == 2 - more


@aio
async def test_a_time_out_of_somebody_else_is_told_as_theirs() -> None:
    async with titled() as it:

        def late(request: LlmRequest, following: Any) -> Any:
            if request.purpose == "session-title":
                raise TimeoutError("the proxy took too long")
            return following()

        it.it.ctx.on(LLM_STREAM, late)
        await it.prompt("go")

        assert it.titles == [("go", "fallback")]
        assert "the proxy took too long" in it.warnings[0]
