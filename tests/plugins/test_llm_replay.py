"""Row `llm-replay`: a session recorded over a real wire, played without a network, makes the same log."""

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dsh.agent.contract import Agent, AgentOptions, CreateAgent
from dsh.agent.registry import AGENTS
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.composition.environment import Environment
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.llm.registry import LLM
from dsh.llm.script.error import ScriptError
from dsh.llm.script.service import MODEL_SCRIPT
from dsh.plugins import (
    agent,
    agent_loop,
    compaction_basic,
    llm,
    llm_anthropic,
    llm_deepseek,
    llm_openai,
    llm_replay,
    llm_retry,
    session,
    session_title,
    session_title_llm,
    system_prompt,
    token_meter,
    tools,
)
from dsh.session.chunk_row import pack
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.session.value import encode
from dsh.testing.mock_server import BEHAVIOURS, MockModelServer, MockOptions
from tests.agent.kit import data_of, ends, loop, settled, types, until
from tests.agent.kit import text as kit_text
from tests.aio import aio
from tests.llm.script_kit import masked
from tests.plugins.compaction.kit import compacting, long

ROUTE = "deepseek-official"
QUICK = {"maxRetries": 1, "backoff": {"initialDelayMs": 1, "maxDelayMs": 2}}
OPTIONS = MockOptions(disconnect_delay_ms=1, chunk_delay_ms=0, retry_after_ms=0)
TITLE = {"fallbackMaxWords": 5, "fallbackMaxBytes": 40, "maxTitleBytes": 80}
SLOW = {"slow_success", "endless_keep_alive"}
Rows = Sequence[tuple[ModuleType, Mapping[str, Any]]]


@asynccontextmanager
async def composed(rows: Rows, env: Mapping[str, str] | None = None) -> AsyncIterator[Context]:
    ctx = Context()
    try:
        ctx.provide(LAUNCH_ENVIRONMENT, Environment(dict(env or {}), []))
        base: Rows = [
            *((module, {}) for module in (session, agent, tools, llm, llm_retry)),
            (session_title, TITLE),
            (system_prompt, {"includeHarnessIdentity": False}),
            (agent_loop, {}),
        ]
        for fiber in [ctx.plugin(module, dict(config)) for module, config in (*base, *rows)]:
            await settled(fiber)
        yield ctx
    finally:
        await ctx.dispose()


async def agent_of(ctx: Context, route: str = ROUTE) -> Agent:
    options = AgentOptions(provider=route, model="m")
    return (await ctx.use(AGENTS).create(CreateAgent(cwd="/ws", options=options))).agent


async def talk(ctx: Context, *prompts: str, route: str = ROUTE) -> Session:
    one = await agent_of(ctx, route)
    for prompt in prompts:
        one.followup(user_message(prompt))
        await one.when_idle()
    return one.session


async def recorded(*script: Any, prompts: Sequence[str] = ("one", "two")) -> Session:
    """A session with the real adapter and a real server."""
    async with MockModelServer(list(script), options=OPTIONS) as server:
        env = {"DEEPSEEK_API_KEY": "mock-key", "DEEPSEEK_BASE_URL": server.base_url}
        row = {"retryPolicy": QUICK, "streamIdleTimeoutMs": 300}
        async with composed([(llm_deepseek, row)], env) as ctx:
            return await talk(ctx, *prompts)


def stored(log: Session, path: Path) -> str:
    rows = [log.header.to_line(), *pack(log.entries())]
    path.write_bytes(b"".join(encode(row) + b"\n" for row in rows))
    return str(path)


def projected(path: Path) -> str:
    """The same as a fixture: `seq` and `time` taken out."""
    header, *rows = path.read_text().splitlines()
    bare = [
        {key: value for key, value in json.loads(row).items() if key not in ("seq", "time", "seq0", "time0")}
        for row in rows
    ]
    path.write_text("\n".join((header, *map(json.dumps, bare), "")))
    return str(path)


@pytest.mark.parametrize("behaviour", sorted(set(BEHAVIOURS) - SLOW))
@aio
async def test_whatever_the_wire_did_the_replay_makes_the_same_log(tmp_path: Path, behaviour: str) -> None:
    log = await recorded(behaviour, "tool_call_success", "success", "success", "success")
    file = stored(log, tmp_path / "s.jsonl")

    async with composed([(llm_replay, {"file": file, "providers": {ROUTE: {}}})]) as ctx:
        replayed = await talk(ctx, "one", "two")
        ctx.use(MODEL_SCRIPT).assert_consumed()

    assert masked(replayed) == masked(log)


WIRES: dict[str, tuple[ModuleType, dict[str, Any]]] = {
    "openai-compatible": (llm_openai, {"apiKeyEnv": "KEY", "baseURLEnv": "CHAT"}),
    "anthropic": (llm_anthropic, {"apiKeyEnv": "KEY", "baseURLEnv": "MESSAGES"}),
}


@pytest.mark.parametrize("route", WIRES)
@aio
async def test_a_session_on_any_wire_is_played_with_its_state(tmp_path: Path, route: str) -> None:
    """Thinking with its signature, parallel calls, an overload: what the wire was is no matter."""
    module, given = WIRES[route]
    script = ["overloaded", "reasoning_tool_call", "parallel_tool_calls", "reasoning_success", "success"]
    async with MockModelServer(script, options=OPTIONS) as server:
        env = {"KEY": "mock-key", "CHAT": server.base_url, "MESSAGES": server.anthropic_url}
        row = {"providers": {route: {**given, "retryPolicy": QUICK}}}
        async with composed([(module, row)], env) as ctx:
            log = await talk(ctx, "one", "two", route=route)
    assert [end["kind"] for end in ends(log)] == ["completed", "completed"]
    file = stored(log, tmp_path / "s.jsonl")

    async with composed([(llm_replay, {"file": file, "providers": {route: {}}})]) as ctx:
        replayed = await talk(ctx, "one", "two", route=route)
        ctx.use(MODEL_SCRIPT).assert_consumed()
    assert masked(replayed) == masked(log)
    has_state = any("replayState" in data["message"]["source"] for data in data_of(log, "assistant/message"))
    assert has_state is (route == "anthropic")


@aio
async def test_without_providers_every_route_is_answered_also_one_without_an_adapter(tmp_path: Path) -> None:
    log = await recorded("server_error", "tool_call_success", "success", "success")
    stored(log, tmp_path / "s.jsonl")
    file = projected(tmp_path / "s.jsonl")
    offline = {"baseURL": "http://127.0.0.1:1", "retryPolicy": QUICK}

    async with composed([(llm_deepseek, offline), (llm_replay, {"file": file})]) as ctx:
        assert masked(await talk(ctx, "one", "two")) == masked(log)
    async with composed([(llm_replay, {"file": file})]) as ctx:
        bare = await talk(ctx, "one", "two")
    assert [end["kind"] for end in ends(bare)] == ["error", "completed"]  # nobody's policy repeats anything


async def cancelled_after(ctx: Context, words: str) -> Session:
    """The log of a turn that is cancelled when the model has said these words."""
    one = await agent_of(ctx)
    one.followup(user_message("one"))
    await until(lambda: words == "".join(data["chunk"].get("text", "") for data in chunks_in(one.session)))
    one.cancel({"kind": "user"})
    await one.when_idle()
    return one.session


def chunks_in(log: Session) -> list[Any]:
    return data_of(log, "assistant/chunk")


@aio
async def test_a_cancelled_session_hangs_where_it_was_cancelled(tmp_path: Path) -> None:
    async with MockModelServer(["stall_after_text"], options=OPTIONS) as server:
        env = {"DEEPSEEK_API_KEY": "k", "DEEPSEEK_BASE_URL": server.base_url}
        async with composed([(llm_deepseek, {})], env) as ctx:
            log = await cancelled_after(ctx, OPTIONS.partial_text)
    file = stored(log, tmp_path / "s.jsonl")

    async with composed([(llm_replay, {"file": file, "providers": {ROUTE: {}}})]) as ctx:
        assert masked(await cancelled_after(ctx, OPTIONS.partial_text)) == masked(log)
    assert ends(log)[0]["kind"] == "aborted"


@aio
async def test_summaries_are_played_at_their_places(tmp_path: Path) -> None:
    config = {"thresholdRatio": 0.5}
    rows: Rows = [(token_meter, {}), (compaction_basic, config)]

    async def session_of(ctx: Context, one: Agent) -> Session:
        for prompt in (long(300), long(300), "third", "fourth"):
            one.followup(user_message(prompt))
            await one.when_idle()
        return one.session

    async with compacting(kit_text(long(200)), config=config) as c:
        log = await session_of(c.loop.ctx, await c.agent())
        assert c.model.asked
    file = stored(log, tmp_path / "s.jsonl")
    async with loop(rows=[*rows, (llm_replay, {"file": file, "providers": {"q": {}}})]) as it:
        options = AgentOptions(provider="q", model="m")
        replayed = await session_of(it.ctx, await it.agent(options=options))
        it.ctx.use(MODEL_SCRIPT).assert_consumed()

    assert [kind for kind in types(log) if kind == "compaction/summary"]
    assert masked(replayed) == masked(log)


@aio
async def test_one_prompt_more_than_recorded_fails_by_name_and_one_fewer_is_missed(tmp_path: Path) -> None:
    file = stored(await recorded("success", "success"), tmp_path / "s.jsonl")
    row = {"file": file, "providers": {ROUTE: {}}}

    async with composed([(llm_replay, row)]) as ctx:
        log = await talk(ctx, "one", "two", "three")
    assert ends(log)[-1]["error"]["code"] == "SCRIPT_EXHAUSTED"
    async with composed([(llm_replay, row)]) as ctx:
        await talk(ctx, "one")
        with pytest.raises(ScriptError, match="1 of the calls"):
            ctx.use(MODEL_SCRIPT).assert_consumed()


@aio
async def test_children_bind_to_sessions_in_order_of_their_first_call(tmp_path: Path) -> None:
    logs = [await recorded(said(words), prompts=["one"]) for words in ("parent", "child")]
    files = [stored(log, tmp_path / f"{at}.jsonl") for at, log in enumerate(logs)]
    row = {"file": files[0], "childFiles": files[1:], "providers": {ROUTE: {}}}

    async with composed([(llm_replay, row)]) as ctx:
        answers = [answer(await talk(ctx, "one")) for _ in range(2)]
        more = ends(await talk(ctx, "one"))
    assert answers == ["parent", "child"]
    assert more[0]["error"]["code"] == "SCRIPT_UNRECORDED_SESSION"


@aio
async def test_children_that_run_side_by_side_are_told_apart_by_what_they_were_asked(tmp_path: Path) -> None:
    asked = {"parent": "start", "child a": "do a", "child b": "do b"}
    logs = [await recorded(said(words), prompts=[task]) for words, task in asked.items()]
    files = [stored(log, tmp_path / f"{at}.jsonl") for at, log in enumerate(logs)]
    row = {"file": files[0], "childFiles": files[1:], "providers": {ROUTE: {}}}

    async with composed([(llm_replay, row)]) as ctx:
        assert [answer(await talk(ctx, task)) for task in ("start", "do b", "do a")] == [
            "parent",
            "child b",
            "child a",
        ]


def said(words: str) -> dict[str, Any]:
    return {"text": [words]}


def answer(log: Session) -> str:
    message = data_of(log, "assistant/message")[-1]["message"]
    return str(message["content"][0]["text"])


@aio
async def test_the_environment_names_what_the_row_does_not(tmp_path: Path) -> None:
    logs = [await recorded(said(words), prompts=["one"]) for words in ("parent", "child a", "child b")]
    files = [stored(log, tmp_path / f"{at}.jsonl") for at, log in enumerate(logs)]
    override = tmp_path / "o.json"
    chunks = [{"type": "finish", "reason": {"kind": "error", "failure": {"message": "m", "code": "PATCHED"}}}]
    override.write_text(json.dumps({"patches": [{"at": 0, "entry": {"kind": "chunks", "chunks": chunks}}]}))
    env = {
        "DSH_SNAPSHOT_FILE": files[0],
        "DSH_SNAPSHOT_OVERRIDE": str(override),
        "DSH_SNAPSHOT_CHILD_FILES": os.pathsep.join(files[1:]),
    }

    async with composed([(llm_replay, {"providers": {ROUTE: {}}})], env) as ctx:
        first = await talk(ctx, "one")
        others = [answer(await talk(ctx, "one")) for _ in range(2)]
    assert ends(first)[0]["error"]["code"] == "PATCHED"
    assert others == ["child a", "child b"]

    alone = {"file": files[2], "overrideFile": str(tmp_path / "none"), "childFiles": []}
    async with composed([(llm_replay, {**alone, "providers": {ROUTE: {}}})], env) as ctx:
        assert answer(await talk(ctx, "one")) == "child b"


@aio
async def test_a_route_lists_its_models_those_that_were_recorded_too(tmp_path: Path) -> None:
    file = stored(await recorded("success", prompts=["one"]), tmp_path / "s.jsonl")
    model = {"id": "n", "contextWindow": 7, "efforts": ["low"], "defaultEffort": "low"}
    providers = {ROUTE: {"displayName": "Replayed", "models": [model]}}

    async with composed([(llm_replay, {"file": file, "providers": providers})]) as ctx:
        registry = ctx.use(LLM)
        [info] = registry.list_providers()
        models = {model.id: model for model in registry.list_models(ROUTE)}
    assert info.display_name == "Replayed"
    assert models.keys() == {"n", "m"}
    assert models["n"].context_window == 7
    assert models["m"].context_window == 1_000_000  # as the recording says


async def failure_of(config: Mapping[str, Any]) -> CompositionError:
    ctx = Context()
    try:
        await ctx.plugin(llm, {})
        with pytest.raises(CompositionError) as caught:
            await ctx.plugin(llm_replay, dict(config))
        return caught.value
    finally:
        await ctx.dispose()


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({}, "llm-replay has no recording"),
        ({"file": "none.jsonl"}, "No such file"),
        ({"file": "~nobody-of-this-name/s"}, "nobody has the home"),
        ({"file": os.devnull}, "no regular file"),
        ({"file": "s.jsonl", "providers": {"p": {"models": [{"id": "a"}, {"id": "a"}]}}}, "once each"),
        ({"file": "s.jsonl", "providers": {"p": {"models": [{"id": "a", "defaultEffort": "x"}]}}}, "none of"),
        ({"file": "s.jsonl", "paceMs": -1}, ">= 0"),
        ({"file": "s.jsonl"}, "SCRIPT_UNFINISHED_CALL"),
        ({"file": "s.jsonl", "overrideFile": "bad.json"}, "bad.json"),
    ],
)
@aio
async def test_what_is_wrong_with_the_row_is_told_when_it_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, Any], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    header = {"type": "session", "version": 0, "id": "s", "createdAt": 0, "delegationDepth": 0}
    data = {"turn": 1, "step": 1, "chunk": {"type": "block-start", "index": 0, "blockType": "text"}}
    row = {"type": "assistant/chunk", "seq": 0, "time": 0, "data": data}
    Path("s.jsonl").write_text(f"{json.dumps(header)}\n{json.dumps(row)}\n")
    Path("bad.json").write_text("{}")

    error = await failure_of(config)
    assert told in f"{error.code} {error} {error.hint}"
    assert error.exit_code == 3


@aio
async def test_an_override_mends_a_call_without_an_end(tmp_path: Path) -> None:
    header = {"type": "session", "version": 0, "id": "s", "createdAt": 0, "delegationDepth": 0}
    data = {"turn": 1, "step": 1, "chunk": {"type": "block-start", "index": 0, "blockType": "text"}}
    row = {"type": "assistant/chunk", "seq": 0, "time": 0, "data": data}
    (tmp_path / "s.jsonl").write_text(f"{json.dumps(header)}\n{json.dumps(row)}\n")
    throw = {"kind": "throw", "chunks": [], "message": "it broke", "code": "BROKEN"}
    (tmp_path / "o.json").write_text(json.dumps({"patches": [{"at": 0, "entry": throw}]}))
    config = {"file": str(tmp_path / "s.jsonl"), "overrideFile": str(tmp_path / "o.json")}

    async with composed([(llm_replay, config)]) as ctx:
        log = await talk(ctx, "one")
    assert ends(log)[0]["error"] == {"message": "it broke", "code": "BROKEN"}


@aio
async def test_titles_are_played_beside_the_turns(tmp_path: Path) -> None:
    async def titled(adapter: Any, route: str) -> Session:
        rows: Rows = [(session_title, TITLE), (session_title_llm, {}), *adapter]
        async with loop(kit_text("A Title", usage=True), rows=rows) as it:
            one = await it.agent(options=AgentOptions(provider=route, model="m"))
            await it.prompt(one, "one")
            await until(lambda: len(data_of(one.session, "session/title")) == 2)
            return one.session

    log = await titled([], "p")
    file = stored(log, tmp_path / "s.jsonl")
    again = await titled([(llm_replay, {"file": file})], "p")

    assert data_of(again, "session/title")[-1] == data_of(log, "session/title")[-1]
    used = [
        [data["usage"] for data in data_of(one, "request/usage") if "purpose" in data] for one in (again, log)
    ]
    assert used[0] == used[1] != []
