"""The search rows against servers of a few lines: what they send, make of the answer, and say of failures."""

import asyncio
import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest

from dsh.capabilities.credentials import CREDENTIAL_REFERENCE_UPDATED, ReferenceUpdated
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.capabilities.model_catalogue import MODEL_CATALOGUE, ModelCatalogue
from dsh.capabilities.model_facts import ModelFacts
from dsh.capabilities.web import WEB_CHANGE, WebError, WebFindings, WebSource
from dsh.errors import CompositionError
from dsh.kernel import CancelToken, Context
from dsh.plugins import web_search_deepseek, web_search_exa, web_search_perplexity
from dsh.session.projection.price import Price
from tests.aio import aio
from tests.llm.wire_server import Play, WireServer, response, saying, serving
from tests.plugins.web.kit import agent, environment, json_response, query, with_provider

KEY = "secret-key-0123456789"
ROWS: dict[str, tuple[ModuleType, str, str]] = {
    "deepseek": (web_search_deepseek, "DEEPSEEK_API_KEY", "/messages"),
    "exa": (web_search_exa, "EXA_API_KEY", "/search"),
    "perplexity": (web_search_perplexity, "PERPLEXITY_API_KEY", "/search"),
}
REPLY = {
    "content": [
        {"type": "server_tool_use", "id": "t", "name": "web_search", "input": {"query": "what"}},
        {
            "type": "web_search_tool_result",
            "tool_use_id": "t",
            "content": [
                {
                    "type": "web_search_result",
                    "url": "https://a.example/",
                    "title": "A",
                    "page_age": "2 days",
                },
                {"type": "web_search_result", "url": "https://b.example/"},
                {"type": "web_search_result", "title": "no url"},
                "noise",
            ],
        },
        {
            "type": "web_search_tool_result",
            "tool_use_id": "u",
            "content": [{"type": "web_search_result", "url": "https://a.example/", "title": "again"}],
        },
        {
            "type": "text",
            "text": "An answer.",
            "citations": [
                {"url": "https://a.example/", "cited_text": "first words"},
                {"url": "https://a.example/", "cited_text": "later words"},
                None,
            ],
        },
    ],
    "usage": {"input_tokens": 1000, "output_tokens": 50, "server_tool_use": {"web_search_requests": 1}},
}
LISTS: dict[str, Any] = {
    "deepseek": REPLY,
    "exa": {
        "results": [
            {"url": "https://a.example/", "title": "A", "publishedDate": "2026-01-02", "text": "first words"},
            {"url": "https://b.example/", "title": None},
            {"title": "no url"},
            7,
        ]
    },
    "perplexity": {
        "results": [
            {"url": "https://a.example/", "title": "A", "date": "2026-01-02", "snippet": "first words"},
            {"url": "https://b.example/"},
            {"url": ""},
        ]
    },
}


async def searched(
    name: str, play: Play, keys: Mapping[str, str] | None = None, **more: Any
) -> tuple[WebFindings, WireServer]:
    row, ref, _ = ROWS[name]
    async with serving(play) as server:
        ctx, service, _ = await with_provider(row, {"baseURL": server.url}, keys or {ref: KEY})
        try:
            return await service.search(query(**more)), server
        finally:
            await ctx.dispose()


async def failing(name: str, play: Play, **more: Any) -> WebError:
    with pytest.raises(WebError) as caught:
        await searched(name, play, **more)
    return caught.value


def sent(server: WireServer, number: int = 0) -> tuple[str, Any]:
    """Head, in lower case, and body of a request."""
    head, _, body = server.requests[number].partition(b"\r\n\r\n")
    return head.decode().lower(), json.loads(body)


@pytest.mark.parametrize("name", ROWS)
@aio
async def test_what_was_found_comes_as_sources_each_once(name: str) -> None:
    found, _ = await searched(name, saying(json_response(LISTS[name])))

    first, second = found.sources
    assert (first.url, first.title, first.snippet) == ("https://a.example/", "A", "first words")
    assert first.published_at in ("2026-01-02", "2 days")
    assert second == WebSource(url="https://b.example/")
    assert found.content is None


@pytest.mark.parametrize("name", ROWS)
@aio
async def test_the_request_holds_query_and_key_and_nothing_else(name: str) -> None:
    _, ref, path = ROWS[name]
    _, server = await searched(name, saying(json_response(LISTS[name])), {ref: f" {KEY}\n"}, text="été?")

    head, body = sent(server)
    assert head.startswith(f"post {path} http/1.1")
    assert KEY in head
    assert KEY not in json.dumps(body)
    if name == "deepseek":
        assert f"x-api-key: {KEY}" in head and f"authorization: bearer {KEY}" in head
        assert "anthropic-version: 2023-06-01" in head
        text = body["messages"][0]["content"][0]["text"]
        assert text.endswith("été?")
        assert body == {
            "model": "deepseek-v4-flash",
            "max_tokens": 4096,
            "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
            "tools": [{"type": "web_search_20250305", "name": "web_search", "max_uses": 5}],
        }
    else:
        assert body["query"] == "été?"
        assert 8 in (body.get("numResults"), body.get("max_results"))


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            json_response({"error": {"message": f"bad key {KEY}"}}, "401 Unauthorized"),
            "HTTP 401: bad key ***",
        ),
        (json_response({"message": "slow down"}, "429 Too Many"), "HTTP 429: slow down"),
        (json_response({}, "500 Broken"), "HTTP 500"),
        (response(b"<html>gateway</html>").replace(b"200 OK", b"502 Bad", 1), "HTTP 502"),
        (
            b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
            "HTTP 302 by 127.0.0.1",
        ),
        (response(b"<html>"), "no JSON"),
        (response(b"[]"), "no JSON object"),
        (response(b"[" * 100_000), "no JSON"),
        (response(b""), "no JSON"),
        (json_response({}), "gave no results"),
        (json_response({"results": {}, "content": {}}), "gave no results"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
@aio
async def test_every_bad_answer_is_an_error_of_the_provider_without_the_key(
    name: str, answer: bytes, words: str
) -> None:
    error = await failing(name, saying(answer))

    assert error.code == "WEB_PROVIDER_ERROR"
    assert words in error.message
    assert KEY not in error.message + error.hint


@pytest.mark.parametrize("name", ROWS)
@aio
async def test_a_connection_that_breaks_is_an_error_of_the_provider_and_not_tried_again(name: str) -> None:
    async def play(number: int, writer: asyncio.StreamWriter) -> bool:
        return False

    row, ref, _ = ROWS[name]
    async with serving(play) as server:
        ctx, service, _ = await with_provider(row, {"baseURL": server.url}, {ref: KEY})
        with pytest.raises(WebError) as caught:
            await service.search(query())
        await ctx.dispose()
    assert caught.value.code == "WEB_PROVIDER_ERROR"
    assert len(server.requests) == 1


@pytest.mark.parametrize("name", ROWS)
@aio
async def test_a_cancelled_search_ends_at_once(name: str) -> None:
    async def play(number: int, writer: asyncio.StreamWriter) -> bool:
        signal.cancel("user")
        await asyncio.sleep(600)
        return False

    signal = CancelToken()
    async with asyncio.timeout(60):
        assert (await failing(name, play, signal=signal)).code == "WEB_ABORTED"


@pytest.mark.parametrize("name", ROWS)
@aio
async def test_without_a_key_nobody_is_asked_and_the_key_is_named(name: str) -> None:
    row, ref, _ = ROWS[name]
    ctx, service, stored = await with_provider(row, {}, {})
    told: list[bool] = []
    ctx.on(WEB_CHANGE, lambda _: told.append(service.can_search()))

    with pytest.raises(WebError, match=f"{ref} is not set"):
        await service.search(query())

    stored.keys[ref] = KEY
    ctx.emit(CREDENTIAL_REFERENCE_UPDATED, ReferenceUpdated(ref))
    assert told == [True]
    await ctx.dispose()


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize(
    ("config", "key", "words"),
    [
        ({"apiKeyEnv": "sk-1234567890abcdef"}, KEY, "apiKeyEnv"),
        ({"baseURL": "nonsense"}, KEY, "base URL"),
        ({"baseURL": "http://user:pass@x.example/"}, KEY, "base URL"),
        ({}, "two words", "characters"),
    ],
)
@aio
async def test_what_is_set_wrongly_is_told_without_its_value(
    name: str, config: dict[str, Any], key: str, words: str
) -> None:
    row, ref, _ = ROWS[name]
    ctx, service, _ = await with_provider(row, config, {ref: key})
    with pytest.raises(WebError, match=words) as caught:
        await service.search(query())
    assert "1234567890" not in caught.value.message and "two words" not in caught.value.message
    await ctx.dispose()


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "https://api.deepseek.com/anthropic/v1"),
        ({"DEEPSEEK_SEARCH_BASE_URL": "http://s.example/v1"}, "http://s.example/v1"),
        ({"DEEPSEEK_BASE_URL": "https://api.deepseek.com/beta"}, "https://api.deepseek.com/anthropic/v1"),
        ({"DEEPSEEK_BASE_URL": "http://proxy.example/v1"}, None),
        ({"DEEPSEEK_BASE_URL": "http://[::1"}, None),
        (
            {
                "DEEPSEEK_BASE_URL": "http://proxy.example/v1",
                "DEEPSEEK_SEARCH_BASE_URL": "http://s.example/v1",
            },
            "http://s.example/v1",
        ),
    ],
)
@aio
async def test_the_key_of_another_server_is_not_sent_to_deepseek(
    variables: dict[str, str], expected: str | None
) -> None:
    from dsh.plugins.web_search_deepseek.provider import DeepSeekSearch

    ctx = Context()
    ctx.provide(LAUNCH_ENVIRONMENT, environment(variables))
    provider = DeepSeekSearch(ctx, web_search_deepseek.Config)

    assert provider.base_url() == expected
    if expected is None:
        assert "DEEPSEEK_SEARCH_BASE_URL" in (provider.problem() or "")
    await ctx.dispose()


class Priced:
    """A catalogue in which the settings know what the search's model costs."""

    def configured(self, provider: str, model: str) -> ModelFacts | None:
        return ModelFacts(price=Price(input=1.0, output=10.0)) if model == "deepseek-v4-flash" else None

    def shipped(self, vendor: str, model: str) -> ModelFacts | None:
        return None


@aio
async def test_request_and_usage_of_a_search_are_logged_and_hold_no_key() -> None:
    async with serving(saying(json_response(REPLY))) as server:
        config = {"baseURL": f"{server.url}?token={KEY}"}
        ctx, service, _ = await with_provider(web_search_deepseek, config, {"DEEPSEEK_API_KEY": KEY})
        catalogue: ModelCatalogue = Priced()
        ctx.provide(MODEL_CATALOGUE, catalogue)
        who = agent(ctx)
        await service.search(query("words", session=who.session))
        await ctx.dispose()

    (kind, request), (_, usage) = who.logged("web/deepseek-search-llm-request", "request/usage")
    assert kind == "web/deepseek-search-llm-request"
    assert list(request) == ["endpoint", "apiVersion", "body"]
    assert (request["endpoint"], request["apiVersion"]) == (f"{server.url}messages", "2023-06-01")
    assert json.loads(json.dumps(request["body"], default=list)) == sent(server)[1]
    assert usage["purpose"] == "web-search"
    assert (usage["provider"], usage["model"]) == ("deepseek-official", "deepseek-v4-flash")
    assert dict(usage["usage"]) == {"inputTokens": 1000, "outputTokens": 50}
    assert usage["costUsd"] == pytest.approx(0.0015)
    assert KEY not in repr(who.logged())


@aio
async def test_a_search_that_fails_is_logged_before_it_is_sent() -> None:
    async with serving(saying(json_response({}, "500 Broken"))) as server:
        ctx, service, _ = await with_provider(
            web_search_deepseek, {"baseURL": server.url}, {"DEEPSEEK_API_KEY": KEY}
        )
        who = agent(ctx)
        for text in ("one", "two"):
            with pytest.raises(WebError):
                await service.search(query(text, session=who.session))
        await ctx.dispose()
    logged = who.logged("web/deepseek-search-llm-request", "request/usage")
    assert [data["body"]["messages"][0]["content"][0]["text"][-3:] for _, data in logged] == ["one", "two"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], "did not search"),
        ([{"type": "text", "text": "I know it."}], "did not search"),
        (
            [
                {
                    "type": "web_search_tool_result",
                    "content": {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
                }
            ],
            "max_uses_exceeded",
        ),
    ],
)
@aio
async def test_a_reply_without_results_is_an_error(content: list[Any], words: str) -> None:
    error = await failing("deepseek", saying(json_response({"content": content})))
    assert error.code == "WEB_PROVIDER_ERROR"
    assert words in error.message


@aio
async def test_a_search_that_found_nothing_is_none() -> None:
    empty = {"content": [{"type": "web_search_tool_result", "content": []}]}
    found, _ = await searched("deepseek", saying(json_response(empty)))
    assert found.sources == ()


@pytest.mark.parametrize("config", [{"maxUses": 0}, {"model": ""}, {"maxTokens": 0}, {"fetch": 1}])
@aio
async def test_wrong_options_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(CompositionError):
        await with_provider(web_search_deepseek, config, {})
