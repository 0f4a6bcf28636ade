"""The Anthropic row over a real socket: headers, endpoints, keys, models, live settings, thinking."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from dsh import __version__
from dsh.capabilities.http import HTTP
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.capabilities.model_catalogue import MODEL_CATALOGUE
from dsh.capabilities.model_facts import ModelFacts
from dsh.capabilities.subprocess import SUBPROCESS
from dsh.composition.environment import Environment
from dsh.kernel import Context, ValidationError, resolve_config
from dsh.llm.adapter import LlmAdapter, ProviderInfo
from dsh.llm.anthropic.adapter import AnthropicAdapter
from dsh.llm.anthropic.route import AnthropicRoute
from dsh.llm.failure import LlmError
from dsh.llm.memo import Memo
from dsh.llm.registry import LLM
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.llm.transport.credential import ContextKeys
from dsh.llm.transport.discovery import Discovery, ServedModel
from dsh.llm.transport.endpoint import Endpoint
from dsh.plugins import llm, llm_anthropic
from dsh.plugins.llm_anthropic import Config
from dsh.session.assembler import BlockAssembler
from dsh.session.chunk import Chunk
from dsh.session.message import Message, assistant_message, tool_result_message, user_message
from dsh.session.projection.price import Price
from dsh.testing.mock_server import MockModelServer
from tests.aio import aio
from tests.llm.build import schema
from tests.plugins.test_settings_consumers import edit, provide, settle
from tests.plugins.wire import Wire, composed, failure_of

KEY = "mock-secret-key"
MODEL = "claude-sonnet-4-5"


class Line(Wire):
    """A running composition whose replies are put together."""

    async def reply(self, *messages: Message, **fields: Any) -> BlockAssembler:
        """The reply to one request."""
        made = BlockAssembler()
        async for chunk in self.stream(*messages, **fields):
            made.push(chunk)
        return made

    async def failure(self, **fields: Any) -> Any:
        """Why a request failed."""
        return failure_of(await self.ask(**fields))


@asynccontextmanager
async def line(env: Mapping[str, str] | None = None, **providers: Any) -> AsyncIterator[Line]:
    async with composed(llm_anthropic, {"providers": providers}, {"K": KEY, **(env or {})}) as ctx:
        yield Line(ctx, "anthropic", MODEL)


@asynccontextmanager
async def against(
    *script: Any, route: Any = None, **options: Any
) -> AsyncIterator[tuple[Line, MockModelServer]]:
    """The route `anthropic` against a mock server; `route` are more of its keys."""
    async with MockModelServer(script or ("success",), api_key=KEY, **options) as server:
        made = {"apiKeyEnv": "K", "baseURL": server.anthropic_url, **(route or {})}
        async with line(anthropic=made) as run:
            yield run, server


# -- what goes out ---------------------------------------------------------------------------------


@aio
async def test_a_request_carries_key_version_and_attribution() -> None:
    headers = {"Anthropic-Beta": "context-1m", "X-Team": "a"}
    async with against(route={"headers": headers}) as (run, server):
        assert list((await run.reply(system="sys")).blocks()) == [
            {"type": "text", "text": server.options.success_text}
        ]
        sent = server.requests[0]

        assert sent.path == "/v1/messages"
        assert sent.headers["x-api-key"] == KEY
        assert "authorization" not in sent.headers
        assert sent.headers["anthropic-version"] == "2023-06-01"
        assert sent.headers["content-type"] == "application/json"
        assert sent.headers["accept"] == "text/event-stream"
        assert sent.headers["user-agent"].startswith(f"dsh/{__version__}")
        assert (sent.headers["anthropic-beta"], sent.headers["x-team"]) == ("context-1m", "a")


@pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/"])
@aio
async def test_the_base_url_may_have_the_version_and_a_slash(tail: str) -> None:
    async with MockModelServer() as server:
        made = {"apiKeyEnv": "K", "baseURLEnv": "URL"}
        async with line({"URL": server.anthropic_url + tail}, anthropic=made) as run:
            await run.reply()
            assert server.requests[0].path == "/v1/messages"


@aio
async def test_a_keyless_route_looks_for_no_key_and_sends_none() -> None:
    async with MockModelServer() as server:
        made = {"apiKeyEnv": "K", "keyless": True, "baseURL": server.anthropic_url}
        async with line(anthropic=made) as run:
            assert (await run.reply()).finish == {"kind": "stop"}
            assert not server.requests[0].headers.keys() & {"x-api-key", "authorization"}


@aio
async def test_a_gateway_may_want_the_key_as_a_bearer_token() -> None:
    async with MockModelServer() as server:
        made = {"apiKeyEnv": "K", "keyHeader": "authorization", "baseURL": server.anthropic_url}
        async with line(anthropic=made) as run:
            await run.reply()
            sent = server.requests[0].headers
            assert (sent["authorization"], "x-api-key" in sent) == (f"Bearer {KEY}", False)


@aio
async def test_a_missing_key_names_its_variable_and_no_other_is_taken() -> None:
    async with line({"ANTHROPIC_API_KEY": KEY}, mine={"apiKeyEnv": "MY_KEY"}) as run:
        failure = await run.failure(route="mine")

        assert failure["code"] == "MISSING_CREDENTIAL"
        assert "MY_KEY" in failure["message"] and KEY not in failure["message"]


@aio
async def test_a_variable_for_the_url_that_is_not_set_is_named_and_nothing_goes_elsewhere() -> None:
    async with line(mine={"apiKeyEnv": "K", "baseURLEnv": "MY_URL"}) as run:
        failure = await run.failure(route="mine")

        assert failure["code"] == "MISSING_BASE_URL"
        assert "MY_URL" in failure["message"]
        assert "llm-anthropic.providers.mine.baseURL" in failure["message"]


@aio
async def test_anthropics_own_key_goes_to_the_public_endpoint_where_nothing_else_is_named() -> None:
    made = {"apiKeyEnv": "ANTHROPIC_API_KEY", "baseURLEnv": "MY_URL"}
    async with line() as run:
        adapter = AnthropicAdapter(run.ctx.use(HTTP), ContextKeys(run.ctx))
        routes = {"anthropic": made, "other": {"apiKeyEnv": "K"}}
        adapter.serve({name: msgspec.convert(value, AnthropicRoute) for name, value in routes.items()})
        for route in adapter.routes.values():
            assert adapter.base_url(route) == "https://api.anthropic.com"


@aio
async def test_a_url_in_the_variable_that_is_none_is_named_without_its_parts() -> None:
    made = {"apiKeyEnv": "K", "baseURLEnv": "MY_URL"}
    async with line({"MY_URL": "https://user:secret@host"}, mine=made) as run:
        failure = await run.failure(route="mine")

        assert failure["code"] == "INVALID_BASE_URL"
        assert "MY_URL" in failure["message"] and "secret" not in failure["message"]


@aio
async def test_one_connection_serves_one_request_after_the_other() -> None:
    async with against("success", repeat_last=True) as (run, server):
        for _ in range(3):
            await run.reply()
        assert server.connections == 1


@aio
async def test_a_wrong_key_is_told_with_where_it_came_from() -> None:
    async with MockModelServer(api_key="another") as server:
        async with line(anthropic={"apiKeyEnv": "K", "baseURL": server.anthropic_url}) as run:
            failure = await run.failure()

            assert (failure["code"], failure["status"]) == ("AUTH", 401)
            assert "environment variable K" in failure["message"] and KEY not in failure["message"]


@pytest.mark.parametrize("script", ["partial_disconnect", "partial_eof", "in_band_error"])
@aio
async def test_a_reply_that_breaks_off_reports_what_it_used_by_then(script: str) -> None:
    async with against(script) as (run, _):
        made = await run.reply()

        assert made.finish["kind"] == "error"
        assert made.usage is not None
        assert (made.usage["inputTokens"], made.usage["cacheReadTokens"]) == (36, 64)


# -- thinking there and back -----------------------------------------------------------------------


def answer(made: BlockAssembler, model: str = MODEL, route: str = "anthropic") -> Message:
    state = made.replay_state
    return assistant_message(made.blocks(), route, model, None if state is None else dict(state))


@aio
async def test_thinking_goes_back_signed_within_a_tool_loop() -> None:
    script = ("reasoning_tool_call", "success")
    async with against(*script, route={"reasoningEffort": "low"}) as (run, server):
        memo = Memo()
        first = await run.reply(memo=memo)
        call = next(block for block in first.blocks() if block["type"] == "tool-call")
        result = tool_result_message(call["id"], [{"type": "text", "text": "done"}])
        history = (user_message("hello"), answer(first), result)

        assert (await run.reply(*history, memo=memo)).finish == {"kind": "stop"}
        sent = server.requests[1].body
        assert sent["thinking"] == {"type": "enabled", "budget_tokens": 2048}
        thought = sent["messages"][1]["content"][0]
        assert (thought["type"], thought["thinking"]) == ("thinking", server.options.reasoning_text)


@aio
async def test_after_a_switch_of_model_or_route_the_history_is_neutral() -> None:
    async with MockModelServer(("reasoning_success",), repeat_last=True) as server:
        made = {"apiKeyEnv": "K", "baseURL": server.anthropic_url}
        async with line(anthropic=made, other=made) as run:
            reply = answer(await run.reply())
            history = (user_message("a"), reply, user_message("b"))
            await run.reply(*history)
            await run.reply(*history, model="claude-other")
            await run.reply(*history, route="other")
            kinds = [
                [block["type"] for block in request.body["messages"][1]["content"]]
                for request in server.requests[1:]
            ]

        assert "replayState" in reply["source"]
        assert kinds == [["thinking", "text"], ["text"], ["text"]]


@pytest.mark.parametrize(
    ("model", "change", "kept"),
    [
        ("claude-opus-5-5", {}, True),
        ("claude-opus-5-5", {"system": "another day"}, False),
        ("claude-opus-5-5", {"tools": (schema("read"), schema("write"))}, False),
        ("claude-opus-5-5", {"first": "shortened"}, False),
        ("claude-opus-5", {"system": "another day", "tools": (), "first": "shortened"}, True),
    ],
)
@aio
async def test_newer_models_get_their_thinking_back_only_behind_what_they_thought_it_behind(
    model: str, change: dict[str, Any], kept: bool
) -> None:
    """They refuse it elsewhere, as after a compaction, or when a tool has come."""
    async with against("reasoning_success", "success") as (run, server):
        asked: dict[str, Any] = {"system": "sys", "tools": (schema("read"),)}
        reply = answer(await run.reply(user_message("hello"), model=model, **asked), model)
        first = change.pop("first", "hello")
        history = (user_message(first), reply, user_message("more"))
        assert (await run.reply(*history, model=model, **{**asked, **change})).finish == {"kind": "stop"}

        kinds = [block["type"] for block in server.requests[1].body["messages"][1]["content"]]
        assert kinds == (["thinking", "text"] if kept else ["text"])
        assert ("behind" in reply["source"]["replayState"]["response"]) == (model != "claude-opus-5")


# -- models ----------------------------------------------------------------------------------------


class Catalogue:
    """Knows one model from each source."""

    def configured(self, provider: str, model: str) -> ModelFacts | None:
        return ModelFacts(context_window=11) if (provider, model) == ("anthropic", "set") else None

    def shipped(self, vendor: str, model: str) -> ModelFacts | None:
        price = Price(input=1, output=2)
        known = ModelFacts(name="Known", context_window=22, price=price)
        return known if (vendor, model) in (("anthropic", "known"), ("anthropic", "set")) else None


@aio
async def test_a_models_facts_come_from_settings_route_catalogue_and_defaults_in_this_order() -> None:
    models = [{"id": "known", "name": "Mine", "contextWindow": 33, "maxTokens": 5, "thinkingStyle": "none"}]
    made = {"apiKeyEnv": "K", "models": models, "defaultContextWindow": 44, "reasoningEffort": "high"}
    elsewhere = {"apiKeyEnv": "K", "baseURL": "http://127.0.0.1:9"}
    async with line(anthropic=made, proxy=elsewhere) as run:
        run.ctx.provide(MODEL_CATALOGUE, Catalogue())
        [known] = run.llm.list_models("anthropic")
        settled, other = (run.llm.resolve_model_info("anthropic", model) for model in ("set", "other"))
        proxied = run.llm.resolve_model_info("proxy", "known")

        assert (known.name, known.context_window, known.default_max_tokens) == ("Mine", 33, 5)
        assert known.reasoning is not None and other.reasoning is not None
        assert ([e.id for e in known.reasoning.efforts], known.reasoning.default_effort) == (["off"], "off")
        assert [e.id for e in other.reasoning.efforts] == ["off", "low", "medium", "high"]
        assert other.reasoning.default_effort == "high"
        assert (settled.name, settled.context_window, settled.price) == (
            "Known",
            11,
            Price(input=1, output=2),
        )
        assert (other.name, other.context_window, other.default_max_tokens) == ("other", 44, 8192)
        assert (proxied.context_window, proxied.price) == (22, None)
        assert known.input_modalities == ("text",)


@pytest.mark.parametrize(
    ("limit", "route", "expected"),
    [
        (8191, {}, 8191),
        (8192, {}, 8192),
        (64000, {}, 8192),
        (4096, {"defaultMaxTokens": 5000}, 4096),
        (4096, {"models": [{"id": MODEL, "maxTokens": 5000}]}, 5000),
    ],
)
@aio
async def test_a_reply_is_not_given_more_room_than_the_model_is_known_to_have(
    limit: int, route: Any, expected: int
) -> None:
    async with against(route=route) as (run, server):

        class Limited(Catalogue):
            def shipped(self, vendor: str, model: str) -> ModelFacts | None:
                return ModelFacts(max_output_tokens=limit)

        run.ctx.provide(MODEL_CATALOGUE, Limited())
        await run.reply()

        assert server.requests[0].body["max_tokens"] == expected


@aio
async def test_any_model_may_be_asked_unless_the_route_is_strict() -> None:
    models = [{"id": "claude-opus-4-1"}, {"id": MODEL}]
    async with against(route={"models": models, "strictModels": True}) as (run, server):
        with pytest.raises(LlmError) as caught:
            await run.reply(model="claude-sonet-4-5")

        assert caught.value.code == "UNKNOWN_MODEL"
        assert "nearest: claude-sonnet-4-5" in caught.value.message
        assert server.requests == []
        assert (await run.reply()).finish == {"kind": "stop"}


@aio
async def test_a_model_that_the_server_does_not_know_is_told_with_route_and_names() -> None:
    async with against("not_found", models=("claude-sonnet-4-5", "m2")) as (run, server):
        failure = await run.failure(model="m")

        assert (failure["code"], failure["status"]) == ("HTTP_404", 404)
        assert "route anthropic has no model 'm'" in failure["message"]
        assert "m2" in failure["message"]
        assert "agent-default-model" in failure["message"]
        assert server.listings == 1


@pytest.mark.parametrize("status", [400, 404, 422])
@aio
async def test_gateways_say_in_their_own_ways_that_there_is_no_such_model(status: int) -> None:
    error = {"type": "invalid_request_error", "message": "Model `m` does not exist"}
    refusal = {"status": status, "body": {"type": "error", "error": error}}
    async with against(refusal, models=("m2",)) as (run, _):
        failure = await run.failure(model="m")

        assert failure["status"] == status
        assert "route anthropic has no model 'm'" in failure["message"]
        assert "m2" in failure["message"]


@aio
async def test_the_servers_models_are_listed_for_who_asks() -> None:
    async with against(models=("a", "b")) as (run, server):
        for _ in range(2):
            found = await run.llm.discover_models("llm-anthropic", "anthropic")
        assert [(info.id, info.name) for info in found] == [("a", "A"), ("b", "B")]
        assert server.listings == 1
        mounting, store = provide(run.ctx)
        await mounting
        more = {"providers": {"anthropic": {"headers": {"x-team": "another"}}}}
        await edit(run.ctx, store, "llm-anthropic", more)
        await run.llm.discover_models("llm-anthropic", "anthropic")
        assert server.listings == 2, "whoever asks as another is told anew"
        [entry] = run.llm.list_configurable_providers()
        assert (entry.provider, entry.display_name) == ("anthropic", "Anthropic")
        assert entry.settings_path == ("providers", "anthropic")


@aio
async def test_the_whole_list_is_asked_for_not_the_first_page(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def ask(_: Discovery, endpoint: Endpoint) -> tuple[ServedModel, ...]:
        asked.append(endpoint.url)
        return (ServedModel("m", "Em", 5000),)

    monkeypatch.setattr(Discovery, "_ask", ask)
    made = {"apiKeyEnv": "K", "baseURL": "https://h.example/v1?team=a"}
    async with line(anthropic=made) as run:
        [found] = await run.llm.discover_models("llm-anthropic", "anthropic")
    assert (found.name, found.context_window) == ("Em", 5000)
    assert asked == ["https://h.example/v1/models?team=a&limit=1000"]


# -- configuration ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "words"),
    [
        ({}, "apiKeyEnv"),
        ({"apiKeyEnv": "sk-ant-123"}, "name of a variable"),
        ({"apiKeyEnv": "K", "baseURL": "ftp://x"}, "baseURL"),
        ({"apiKeyEnv": "K", "baseURLEnv": "a b"}, "baseURLEnv"),
        ({"apiKeyEnv": "K", "displayName": " "}, "displayName"),
        ({"apiKeyEnv": "K", "headers": {"X-Api-Key": "v"}}, "apiKeyEnv"),
        ({"apiKeyEnv": "K", "headers": {"Authorization": "v"}}, "apiKeyEnv"),
        ({"apiKeyEnv": "K", "headers": {"anthropic-version": "v"}}, "anthropic-version"),
        ({"apiKeyEnv": "K", "headers": {"x": "a\nb"}}, "headers"),
        *[
            ({"apiKeyEnv": "K", "thinkingBudgets": {name: 1023}}, "1024")
            for name in ("low", "medium", "high")
        ],
        *[({"apiKeyEnv": "K", name: 0}, name) for name in ("defaultMaxTokens", "defaultContextWindow")],
        *[
            ({"apiKeyEnv": "K", "models": [{"id": "a", name: 0}]}, name)
            for name in ("maxTokens", "contextWindow")
        ],
        ({"apiKeyEnv": "K", "models": [{"id": "a"}, {"id": "a"}]}, "models holds a twice"),
        ({"apiKeyEnv": "K", "models": [{"id": " "}]}, "ids"),
        ({"apiKeyEnv": "K", "strictModels": True}, "strictModels"),
        ({"apiKeyEnv": "K", "thinkingStyle": "none", "reasoningEffort": "low"}, "thinkingStyle"),
        ({"apiKeyEnv": "K", "streamIdleTimeoutMs": 0}, "timeouts"),
        ({"apiKeyEnv": "K", "cacheRetention": "forever"}, "cacheRetention"),
        ({"apiKeyEnv": "K", "unknown": 1}, "unknown"),
    ],
)
def test_a_route_that_cannot_work_is_refused_at_the_load(route: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words) as caught:
        resolve_config(Config, {"providers": {"anthropic": route}})
    assert "sk-ant-123" not in str(caught.value)


@aio
async def test_no_routes_are_legal_and_settings_bring_swap_and_take_them() -> None:
    async with MockModelServer(repeat_last=True) as server, line() as run:
        assert run.llm.list_providers() == ()
        mounting, store = provide(run.ctx)
        await mounting
        made = {"apiKeyEnv": "K", "baseURL": server.anthropic_url}
        await edit(
            run.ctx, store, "llm-anthropic", {"providers": {"a": made, "b": {**made, "displayName": "B"}}}
        )
        assert [info.display_name for info in run.llm.list_providers()] == ["a", "B"]
        assert (await run.reply(route="a")).finish == {"kind": "stop"}

        await edit(run.ctx, store, "llm-anthropic", {"providers": {"b": made}})
        assert [info.display_name for info in run.llm.list_providers()] == ["b"]
        await edit(run.ctx, store, "llm-anthropic", {})
        assert run.llm.list_providers() == ()
        assert run.llm.list_configurable_providers() == ()


@aio
async def test_the_key_of_each_route_is_kept_from_child_processes_once() -> None:
    class Subprocess:
        def __init__(self) -> None:
            self.hidden: list[str] = []

        def hide(self, name: str) -> None:
            self.hidden.append(name)

    async with line(anthropic={"apiKeyEnv": "K"}, free={"keyless": True}) as run:
        service: Any = Subprocess()
        run.ctx.provide(SUBPROCESS, service)
        mounting, store = provide(run.ctx)
        await mounting
        more = {"providers": {"gateway": {"apiKeyEnv": "GATEWAY_KEY"}, "again": {"apiKeyEnv": "K"}}}
        await edit(run.ctx, store, "llm-anthropic", more)
        await settle()
        assert service.hidden == ["K", "GATEWAY_KEY"]


@aio
async def test_a_call_keeps_the_settings_it_was_prepared_with() -> None:
    async with against("success", repeat_last=True) as (run, _):
        mounting, store = provide(run.ctx)
        await mounting
        call = await run.llm.prepare_call(LlmCallConfig("anthropic", MODEL))
        bad = {
            "providers": {"anthropic": {"baseURL": "http://127.0.0.1:9", "retryPolicy": {"maxRetries": 1}}}
        }
        await edit(run.ctx, store, "llm-anthropic", bad)
        await settle()

        asked = LlmRequest(config=call.config, messages=(user_message("x"),))
        chunks = [chunk async for chunk in call.stream(asked)]
        assert chunks[-1].reason == {"kind": "stop"}  # type: ignore[union-attr]
        assert call.retry_policy.max_retries == 5
        after = await run.llm.prepare_call(LlmCallConfig("anthropic", MODEL))
        assert after.retry_policy.max_retries == 1


@aio
async def test_a_route_of_another_row_is_not_taken_by_the_settings() -> None:
    async with against() as (run, _):
        await run.ctx.plugin(somebody, inject=[LLM])
        mounting, store = provide(run.ctx)
        await mounting
        await edit(run.ctx, store, "llm-anthropic", {"providers": {"taken": {"apiKeyEnv": "K"}}})

        assert [info.provider for info in run.llm.list_providers()] == ["anthropic", "taken"]
        assert run.llm.list_providers()[1].display_name == "Somebody"


class Somebody(LlmAdapter):
    """Serves the route `taken`, and is never asked."""

    def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        raise AssertionError(request)

    def provider_info(self, provider: str) -> ProviderInfo:
        return ProviderInfo(provider, "Somebody")


def somebody(ctx: Context) -> None:
    ctx.use(LLM).register_adapter(["taken"], Somebody())


@aio
async def test_unloading_the_row_takes_its_routes() -> None:
    ctx = Context()
    try:
        ctx.provide(LAUNCH_ENVIRONMENT, Environment({}, []))
        await ctx.plugin(llm, {})
        row = ctx.plugin(llm_anthropic, {"providers": {"a": {"apiKeyEnv": "K"}}})
        await row
        assert [info.provider for info in ctx.use(LLM).list_providers()] == ["a"]
        await row.dispose()
        assert ctx.use(LLM).list_providers() == ()
    finally:
        await ctx.dispose()
