"""The row `llm-openai`: endpoints, keys, headers and replies, against a server that is strict."""

import asyncio
from typing import Any

import pytest

from dsh import __version__
from dsh.kernel import CancelToken
from dsh.kernel.schema import ValidationError, resolve_config
from dsh.plugins import llm_anthropic, llm_openai
from dsh.plugins.llm_openai import Config
from dsh.session.chunk import BlockEnd, UsageChunk
from dsh.testing.mock_server import MockModelServer
from tests.aio import aio
from tests.plugins.chat_table import FAULTS, SUCCESS, WHOLE
from tests.plugins.openai_wire import KEY, QUICK, ROUTE, against, routes, usual
from tests.plugins.wire import failure_of, reason_of, text_of

LEAK = '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>bash<｜tool▁sep｜>{"command": "x"}<｜tool▁call▁end｜>'


# -- what goes out ---------------------------------------------------------------------------------


@aio
async def test_a_plain_request_holds_what_every_server_takes_and_nothing_of_ours() -> None:
    async with against() as (run, server):
        chunks = await run.ask(system="sys", session_id="s-1")
        sent = server.requests[0]

        assert text_of(chunks) == SUCCESS
        assert sent.path == "/v1/chat/completions"
        assert list(sent.body) == ["model", "messages", "stream", "stream_options"]
        assert sent.body["messages"][0] == {"role": "system", "content": "sys"}
        assert sent.headers["authorization"] == f"Bearer {KEY}"
        assert sent.headers["user-agent"].startswith(f"dsh/{__version__}")
        assert sent.headers["accept"] == "text/event-stream"
        assert not any("deepseek" in name or "s-1" in value for name, value in sent.headers.items())


@aio
async def test_a_route_adds_its_headers_and_its_own_never_replace_ours() -> None:
    route = {"headers": {"HTTP-Referer": "https://example.org", "X-Title": "dsh"}}
    async with against(route=route) as (run, server):
        await run.ask()
        assert server.requests[0].headers["http-referer"] == "https://example.org"
        assert server.requests[0].headers["x-title"] == "dsh"

    for name in ("User-Agent", "AUTHORIZATION", "content-type", "Host"):
        with pytest.raises(ValidationError, match=name.lower()):
            resolve_config(Config, {"providers": {"r": usual(headers={name: "x"})}})


@aio
async def test_a_keyless_route_asks_nobody_for_a_key_and_sends_none() -> None:
    async with MockModelServer(dialect="openai") as server:
        route = {"keyless": True, "baseURL": server.base_url}
        async with routes({"local": route}, {"OPENAI_API_KEY": "unprintable \n key"}) as run:
            assert text_of(await run.ask(route="local")) == SUCCESS
        assert "authorization" not in server.requests[0].headers


@pytest.mark.parametrize("slashes", ["", "/", "//"])
@aio
async def test_a_trailing_slash_of_the_base_url_does_no_harm(slashes: str) -> None:
    async with MockModelServer() as server, routes({ROUTE: usual(server.base_url + slashes)}) as run:
        await run.ask()
        assert server.requests[0].path == "/v1/chat/completions"


@aio
async def test_the_variable_gives_the_endpoint_only_where_the_route_has_none() -> None:
    async with MockModelServer(repeat_last=True) as server:
        async with routes({ROUTE: usual()}, {"OPENAI_BASE_URL": f" {server.base_url} "}) as run:
            assert text_of(await run.ask()) == SUCCESS
        elsewhere = {"OPENAI_BASE_URL": "http://127.0.0.1:9/none"}
        async with routes({ROUTE: usual(server.base_url)}, elsewhere) as run:
            assert text_of(await run.ask()) == SUCCESS


# -- what is missing -------------------------------------------------------------------------------


@aio
async def test_a_route_without_an_endpoint_says_which_variable_and_key_would_give_it_one() -> None:
    async with routes({ROUTE: usual()}) as run:
        failure = failure_of(await run.ask())
    assert failure["code"] == "MISSING_BASE_URL"
    assert "export OPENAI_BASE_URL=" in failure["message"]
    assert "llm-openai.providers.openai-compatible.baseURL" in failure["message"]


@pytest.mark.parametrize("url", ["ftp://x", "http://user:secret@x", "not a url"])
@aio
async def test_a_variable_that_holds_no_endpoint_is_named_and_not_shown(url: str) -> None:
    async with routes({ROUTE: usual()}, {"OPENAI_BASE_URL": url}) as run:
        failure = failure_of(await run.ask())
    assert failure["code"] == "INVALID_BASE_URL"
    assert "OPENAI_BASE_URL" in failure["message"]
    assert "secret" not in failure["message"]


@aio
async def test_a_named_key_that_is_missing_is_never_replaced_by_another() -> None:
    async with MockModelServer() as server:
        route = usual(server.base_url, apiKeyEnv="GATEWAY_KEY", displayName="Gateway")
        async with routes({ROUTE: route}) as run:
            failure = failure_of(await run.ask())
        assert server.requests == []
    assert failure["code"] == "MISSING_CREDENTIAL"
    assert "no API key for Gateway: GATEWAY_KEY is not set" in failure["message"]
    assert KEY not in failure["message"]


@pytest.mark.parametrize(
    "route",
    [
        {"baseURL": "http://x"},
        {"apiKeyEnv": "K"},
        {"apiKeyEnv": "sk-12-34", "baseURL": "http://x"},
        {"apiKeyEnv": "K", "baseURL": "http://u:p@x"},
        {"apiKeyEnv": "K", "baseURL": "x"},
        {"apiKeyEnv": "K", "baseURLEnv": "not a name"},
        usual(apiKey="sk-literal"),
        usual(headers={"bad name": "x"}),
        usual(headers={"x": "line\nbreak"}),
        usual(models=[{"id": "a"}, {"id": "a"}]),
        usual(models=[{"id": " "}]),
        usual(models=[{"id": "a", "contextWindow": 0}]),
        usual(strictModels=True),
        usual(displayName=" "),
        usual(defaultContextWindow=0),
        usual(defaultMaxTokens=0),
        usual(reasoningEffort="high"),
        usual(reasoningEffort="high", compat={"effortMap": {"low": "low"}}),
        usual(models=[{"id": "a", "reasoningEffort": "high"}]),
        usual(
            reasoningEffort="low",
            compat={"effortMap": {"low": "low"}},
            models=[{"id": "a", "compat": {"effortMap": {}}}],
        ),
        usual(streamIdleTimeoutMs=0),
        usual(totalTimeoutMs=2**31),
        usual(retryPolicy={"maxRetries": -1}),
        usual(compat={"nothing": True}),
    ],
)
def test_a_route_that_cannot_be_is_refused(route: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        resolve_config(Config, {"providers": {"r": route}})


@pytest.mark.parametrize(
    ("row", "api", "says"),
    [
        (llm_openai, "anthropic-messages", "api anthropic-messages is spoken by row llm-anthropic; put the"),
        (llm_openai, "openai-responses", "api must be openai-completions here or left out, and is 'openai-r"),
        (llm_anthropic, "openai-completions", "api openai-completions is spoken by row llm-openai; put the"),
        (llm_anthropic, "", "api must be anthropic-messages here or left out, and is ''"),
    ],
)
def test_a_route_of_another_wire_is_sent_to_the_row_that_speaks_it(row: Any, api: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        resolve_config(row.Config, {"providers": {"r": usual(api=api)}})


def test_keys_that_other_programs_write_for_such_a_route_are_taken() -> None:
    more: dict[str, Any] = {
        "api": "openai-completions",
        "defaultInput": ["text", "image"],
        "maxRequestImageBytes": 1,
    }
    assert "r" in resolve_config(Config, {"providers": {"r": usual(**more)}}).providers
    messages = {"providers": {"r": usual(api="anthropic-messages")}}
    assert "r" in resolve_config(llm_anthropic.Config, messages).providers


def test_a_route_needs_a_name_and_none_at_all_is_fine() -> None:
    with pytest.raises(ValidationError):
        resolve_config(Config, {"providers": {" ": usual()}})
    assert resolve_config(Config, {}).providers == {}


# -- replies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("behaviour", "text", "kind"), WHOLE)
@aio
async def test_whole_replies_arrive_whole(behaviour: str, text: str, kind: str) -> None:
    async with against(behaviour) as (run, _):
        chunks = await run.ask()
    assert (text_of(chunks), reason_of(chunks)) == (text, {"kind": kind})
    assert isinstance(chunks[-2], UsageChunk)


@pytest.mark.parametrize(("behaviour", "code"), FAULTS)
@aio
async def test_every_failure_has_its_code(behaviour: str, code: str) -> None:
    async with against(behaviour) as (run, server):
        failure = failure_of(await run.ask())
    assert failure["code"] == code
    assert KEY not in failure["message"]
    assert len(server.requests) == 1
    has_head = behaviour != "connection_reset"  # of any answer the provider can look up the request
    assert failure.get("requestId") == (QUICK.request_id if has_head else None)


@pytest.mark.parametrize(("mode", "named"), [("normal", True), ("always", False)])
@aio
async def test_a_wait_that_ends_the_turn_is_named(mode: str, named: bool) -> None:
    route = {"retryPolicy": {"mode": mode, "maxProviderDelayMs": 500}}
    async with against("rate_limit", route=route) as (run, _):
        failure = failure_of(await run.ask())
    assert failure["providerRetryAfterMs"] == 1000
    assert ("longer than maxProviderDelayMs" in failure["message"]) is named


@aio
async def test_a_body_without_done_is_whole_where_the_route_says_so() -> None:
    async with against("missing_done", "partial_eof", route={"compat": {"doneOptional": True}}) as (run, _):
        assert text_of(await run.ask()) == SUCCESS
        assert failure_of(await run.ask())["code"] == "STREAM_CLOSED"


@aio
async def test_a_call_leaked_as_text_fails_the_attempt_unless_the_route_takes_it() -> None:
    async with against({"text": ["Let me look.", LEAK[:20], LEAK[20:]]}) as (run, _):
        chunks = await run.ask()
        assert failure_of(chunks)["code"] == "MALFORMED_RESPONSE"
        assert not any(isinstance(chunk, BlockEnd) for chunk in chunks)
    async with against({"text": [LEAK]}, route={"detectLeakedCalls": False}) as (run, _):
        assert text_of(await run.ask()) == LEAK


@aio
async def test_a_request_beyond_the_known_window_is_an_overflow_though_the_server_was_content() -> None:
    reply = {"text": ["ok"], "usage": {"prompt_tokens": 101, "completion_tokens": 1}}
    small = {"models": [{"id": "gpt-x", "contextWindow": 100}]}
    async with against(reply, route=small) as (run, _):
        assert failure_of(await run.ask())["code"] == "CONTEXT_WINDOW_EXCEEDED"
    async with against(reply, route={"defaultContextWindow": 100}) as (run, _):
        assert text_of(await run.ask()) == "ok"  # what is only guessed is not held against a reply


@aio
async def test_a_cancelled_signal_ends_the_call() -> None:
    async with against("stall") as (run, server):
        signal = CancelToken()
        asked = asyncio.ensure_future(run.ask(signal=signal))
        while not server.requests:
            await asyncio.sleep(0.01)
        signal.cancel({"kind": "user"})
        chunks = await asked
    assert reason_of(chunks)["kind"] == "aborted"
