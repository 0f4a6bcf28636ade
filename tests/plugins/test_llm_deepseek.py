"""The DeepSeek row over a real socket: every failure, every oddity, and what goes out."""

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsh import __version__
from dsh.capabilities.credentials import CREDENTIALS, Credential
from dsh.capabilities.launch import HOME_PATH
from dsh.kernel import CancelToken, ValidationError, resolve_config
from dsh.llm.failure import LlmError
from dsh.llm.request import LlmCallConfig
from dsh.plugins.llm_deepseek import Config
from dsh.session.chunk import BlockEnd, BlockStart, Finish, TextDelta, UsageChunk
from dsh.session.message import user_message
from dsh.testing.mock_server import MockModelServer, MockOptions
from tests.aio import aio
from tests.plugins.chat_table import FAULTS, WHOLE
from tests.plugins.wire import KEY, against, failure_of, reason_of, text_of, wire

SUCCESS = MockOptions().success_text
PARTIAL = MockOptions().partial_text
QUICK = MockOptions(chunk_delay_ms=1)


async def answered(server: MockModelServer) -> None:
    """Wait until the server has noticed how its last exchange ended."""
    async with asyncio.timeout(30):
        while server.requests[-1].outcome is None:
            await asyncio.sleep(0.01)


# -- what goes out ---------------------------------------------------------------------------------


@aio
async def test_a_request_carries_defaults_headers_and_nothing_of_the_home() -> None:
    async with against("success") as (run, server):
        chunks = await run.ask(system="sys", session_id="s-1")
        sent = server.requests[0]

        assert text_of(chunks) == SUCCESS
        assert sent.path == "/v1/chat/completions"
        assert list(sent.body) == [
            "model", "messages", "stream", "stream_options", "thinking", "reasoning_effort", "max_tokens",
        ]  # fmt: skip
        assert sent.body["thinking"] == {"type": "enabled"}
        assert (sent.body["reasoning_effort"], sent.body["max_tokens"]) == ("high", 256_000)
        assert sent.headers["authorization"] == f"Bearer {KEY}"
        assert sent.headers["content-type"] == "application/json"
        assert sent.headers["accept"] == "text/event-stream"
        assert sent.headers["user-agent"].startswith(f"dsh/{__version__}")
        assert not any(name.startswith("x-deepseek") for name in sent.headers)


@aio
async def test_identity_goes_out_only_where_it_is_asked_for(tmp_path: Path) -> None:
    async with against("success", repeat_last=True, row={"identityHeaders": True}) as (run, server):
        run.ctx.provide(HOME_PATH, lambda *parts: tmp_path.joinpath(*parts))
        await run.ask(session_id="s-1")
        await run.ask(session_id="s-1", purpose="compaction")
        await run.ask(session_id="s-1", purpose="session-title")
        first, second, title = (request.headers for request in server.requests)

        assert first["x-deepseek-harness-session-id"] == "s-1"
        assert first["x-deepseek-harness-user-id"] == second["x-deepseek-harness-user-id"]
        assert "x-deepseek-harness-compact" not in first
        assert second["x-deepseek-harness-compact"] == "1"
        assert "x-deepseek-harness-compact" not in title
        file = tmp_path / ".anonymous-user-id"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("slashes", ["", "/", "//"])
@aio
async def test_a_trailing_slash_of_the_base_url_does_no_harm(slashes: str) -> None:
    async with MockModelServer() as server, wire(server.base_url + slashes) as run:
        assert text_of(await run.ask()) == SUCCESS
        assert server.requests[0].path == "/v1/chat/completions"


@aio
async def test_the_configured_base_url_wins_over_the_environment() -> None:
    async with MockModelServer() as server, wire("http://127.0.0.1:9/none", baseURL=server.base_url) as run:
        assert text_of(await run.ask()) == SUCCESS


@aio
async def test_a_base_url_that_is_none_fails_the_request_by_name() -> None:
    async with wire("ftp://user:secret@x") as run:
        failure = failure_of(await run.ask())

        assert failure["code"] == "INVALID_BASE_URL"
        assert "DEEPSEEK_BASE_URL" in failure["message"]
        assert "secret" not in failure["message"]


@aio
async def test_one_connection_serves_one_request_after_the_other() -> None:
    async with against("success", repeat_last=True) as (run, server):
        for _ in range(3):
            await run.ask()

        assert len(server.requests) == 3
        assert server.connections == 1


# -- the model's facts -----------------------------------------------------------------------------


@aio
async def test_models_have_windows_efforts_and_default_caps() -> None:
    models = [{"id": "small", "contextWindow": 10, "maxTokens": 5}, {"id": "plain"}]
    async with wire(None, models=models, defaultContextWindow=99, maxTokens=7) as run:
        small, plain = run.llm.list_models("deepseek-official")
        unknown = run.llm.resolve_model_info("deepseek-official", "else")

        assert (small.context_window, small.default_max_tokens, small.name) == (10, 5, "small")
        assert (plain.context_window, plain.default_max_tokens) == (99, 7)
        assert (unknown.id, unknown.context_window, unknown.input_modalities) == ("else", 99, ("text",))
        assert small.reasoning is not None
        assert [effort.id for effort in small.reasoning.efforts] == ["off", "low", "high", "max"]
        assert small.reasoning.default_effort == "high"


@aio
async def test_the_shipped_catalogue_and_a_deployment_without_thinking() -> None:
    async with wire(None, thinking="disabled") as run:
        models = run.llm.list_models("deepseek-official")
        assert [(model.id, model.name) for model in models] == [
            ("deepseek-v4-flash", "DeepSeek-V4-Flash"),
            ("deepseek-v4-pro", "DeepSeek-V4-Pro"),
            ("deepseek-v4-flash-vision-exp", "DeepSeek-V4-Flash-Vision-Exp"),
        ]
        reasoning = models[0].reasoning
        assert reasoning is not None
        assert ([effort.id for effort in reasoning.efforts], reasoning.default_effort) == (["off"], "off")
        with pytest.raises(LlmError) as caught:
            await run.llm.prepare_call(LlmCallConfig("deepseek-official", "x", reasoning_effort="high"))
        assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"
        assert [info.display_name for info in run.llm.list_providers()] == ["DeepSeek"]


@pytest.mark.parametrize(
    "raw",
    [
        {"baseURL": "not a url"},
        {"apiKeyEnv": " "},
        {"thinking": "disabled", "reasoningEffort": "high"},
        {"reasoningEffort": "medium"},
        {"maxTokens": 0},
        {"models": [{"id": "a"}, {"id": "a"}]},
        {"models": [{"id": "a", "price": 1}]},
        {"streamIdleTimeoutMs": 0},
        {"totalTimeoutMs": 2**31},
        {"retryPolicy": {"maxRetries": -1}},
        {"apiKey": "sk-literal"},
    ],
)
def test_a_config_that_cannot_be_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        resolve_config(Config, raw)


def test_image_keys_are_accepted() -> None:
    assert resolve_config(Config, {"maxImagesPerRequest": 3}).max_images_per_request == 3


# -- replies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("behaviour", "text", "kind"), WHOLE)
@aio
async def test_whole_replies_arrive_whole(behaviour: str, text: str, kind: str) -> None:
    async with against(behaviour, options=QUICK) as (run, server):
        chunks = await run.ask()

        assert text_of(chunks) == text
        assert reason_of(chunks) == {"kind": kind}
        assert isinstance(chunks[-2], UsageChunk)
        assert server.requests[0].outcome == "completed"


@aio
async def test_a_tool_call_arrives_with_its_raw_arguments() -> None:
    async with against("tool_call_success", "tool_call_without_id", "tool_calls_without_index") as (run, _):
        ends = [[c.block for c in await run.ask() if isinstance(c, BlockEnd)] for _ in range(3)]
        arguments = MockOptions().tool_arguments
        call = {"type": "tool-call", "id": "mock-call-1", "name": "bash", "arguments": arguments}

        assert ends[0] == [call]
        assert ends[1][0]["id"].startswith("call_")
        assert ends[2] == [call, {**call, "id": "mock-call-2"}]


# -- failures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("behaviour", "code"), FAULTS)
@aio
async def test_every_failure_has_its_code(behaviour: str, code: str) -> None:
    async with against(behaviour) as (run, server):
        chunks = await run.ask()
        failure = failure_of(chunks)

        assert failure["code"] == code
        assert KEY not in failure["message"]
        assert len(failure["message"]) < 450
        assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("behaviour", "words"),
    [
        ("server_error", "The server had an error"),
        ("in_band_error", "Rate limit"),
        ("error_event", "the model is overloaded"),
        ("json_error", "internal error"),
        ("content_filter", "model stopped: content_filter"),
        ("html_page", "Welcome to the WiFi."),
        ("gateway_page", "502 Bad Gateway"),
        ("redirect", "redirects are not followed"),
        ("auth_error", "the key came from the environment variable DEEPSEEK_API_KEY"),
        ("malformed_json", "{not-json"),
    ],
)
@aio
async def test_the_message_says_what_the_provider_said(behaviour: str, words: str) -> None:
    async with against(behaviour) as (run, _):
        assert words in failure_of(await run.ask())["message"]


@pytest.mark.parametrize(
    "behaviour", ["connection_reset", "partial_disconnect", "partial_eof", "html_page", "gateway_page"]
)
@aio
async def test_transport_failures_name_the_endpoint(behaviour: str) -> None:
    async with against(behaviour) as (run, server):
        assert server.base_url in failure_of(await run.ask())["message"]


@pytest.mark.parametrize("behaviour", ["partial_eof", "partial_disconnect", "in_band_error"])
@aio
async def test_a_stream_that_breaks_off_leaves_its_block_open(behaviour: str) -> None:
    async with against(behaviour) as (run, _):
        chunks = await run.ask()

        assert text_of(chunks) == PARTIAL
        assert [type(c) for c in chunks if not isinstance(c, TextDelta)] == [BlockStart, Finish]


@aio
async def test_status_request_id_and_wait_travel_in_the_failure() -> None:
    async with against("rate_limit", options=MockOptions(retry_after_ms=2500, request_id="req-7")) as (
        run,
        _,
    ):
        assert failure_of(await run.ask()) == {
            "message": "Rate limit reached for requests",
            "code": "RATE_LIMIT",
            "status": 429,
            "providerRetryAfterMs": 3000,
            "requestId": "req-7",
        }


@aio
async def test_the_request_id_is_told_for_a_broken_stream_too() -> None:
    async with against("partial_eof", "in_band_error", "malformed_json", repeat_last=True) as (run, _):
        for _ in range(3):
            assert failure_of(await run.ask())["requestId"] == "mock-request-1"


@aio
async def test_a_wait_that_is_too_long_is_named() -> None:
    async with against("rate_limit", options=MockOptions(retry_after_ms=86_400_000)) as (run, _):
        assert "86400 s" in failure_of(await run.ask())["message"]


@aio
async def test_a_key_that_the_server_echoes_is_masked() -> None:
    reply = {"status": 400, "body": {"error": {"message": f"what is {KEY}?"}}}
    async with against(reply) as (run, _):
        assert failure_of(await run.ask())["message"] == "what is ***?"


@aio
async def test_an_error_without_a_usable_message_is_generic() -> None:
    async with against({"status": 500, "body": {"oops": 1}}, {"status": 503, "body": ""}) as (run, server):
        for status in (500, 503):
            failure = failure_of(await run.ask())
            assert failure["code"] == "SERVER"
            assert failure["message"] == f"DeepSeek API error (HTTP {status}) from {server.base_url}"


@aio
async def test_nobody_listening_is_a_transport_failure() -> None:
    async with wire("http://127.0.0.1:9/v1") as run:
        failure = failure_of(await run.ask())

        assert failure["code"] == "TRANSPORT"
        assert "cannot reach http://127.0.0.1:9/v1" in failure["message"]


@aio
async def test_after_a_failure_the_next_request_works() -> None:
    async with against("connection_reset", "partial_disconnect", "stream_eof", "auth_error", "success") as (
        run,
        _,
    ):
        for _ in range(4):
            failure_of(await run.ask())
        assert text_of(await run.ask()) == SUCCESS


# -- limits and cancellation -----------------------------------------------------------------------


@aio
async def test_silence_ends_as_a_timeout_and_closes_the_connection() -> None:
    async with against("stall", row={"streamIdleTimeoutMs": 500}) as (run, server):
        failure = failure_of(await run.ask())
        await answered(server)

        assert failure["code"] == "TIMEOUT"
        assert server.base_url in failure["message"]
        assert "500 ms" in failure["message"]
        assert server.requests[0].outcome == "stalled"


@aio
async def test_silence_after_some_deltas_is_the_same() -> None:
    deltas = ['data: {"choices":[{"delta":{"content":"a"}}]}\n\n'] * 2
    async with against({"raw": deltas, "delay_ms": 60_000}, row={"streamIdleTimeoutMs": 1500}) as (run, _):
        chunks = await run.ask()

        assert text_of(chunks) == "a"
        assert failure_of(chunks)["code"] == "TIMEOUT"


@aio
async def test_a_server_that_never_answers_is_a_timeout() -> None:
    held: list[asyncio.StreamWriter] = []

    async def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with wire(f"http://127.0.0.1:{port}", streamIdleTimeoutMs=60) as run:
        assert failure_of(await run.ask())["code"] == "TIMEOUT"
    for writer in held:
        writer.close()
    server.close()


@pytest.mark.parametrize("behaviour", ["keep_alive_comments", "empty_deltas"])
@aio
async def test_anything_received_keeps_the_call_alive(behaviour: str) -> None:
    # 4 pieces with 2 pauses of 100 ms each: 800 ms in all, never 500 ms of silence
    async with against(
        behaviour, options=MockOptions(chunk_delay_ms=100), row={"streamIdleTimeoutMs": 500}
    ) as (run, _):
        assert text_of(await run.ask()) == SUCCESS


@aio
async def test_the_consumers_own_time_does_not_count_as_silence() -> None:
    async with against("slow_success", options=QUICK, row={"streamIdleTimeoutMs": 300}) as (run, _):
        chunks = []
        async for chunk in run.stream():
            chunks.append(chunk)
            if len(chunks) in (2, 4):
                await asyncio.sleep(0.4)
        assert reason_of(chunks) == {"kind": "stop"}


@pytest.mark.parametrize(
    ("key", "words"),
    [("firstTokenTimeoutMs", "did not begin its reply"), ("totalTimeoutMs", "did not finish its reply")],
)
@aio
async def test_an_endless_keep_alive_is_bounded_where_a_limit_is_set(key: str, words: str) -> None:
    async with against("endless_keep_alive", options=MockOptions(chunk_delay_ms=5), row={key: 80}) as (
        run,
        _,
    ):
        failure = failure_of(await run.ask())

        assert failure["code"] == "TIMEOUT"
        assert words in failure["message"]


@aio
async def test_the_limit_on_the_first_token_ends_with_it() -> None:
    async with against(
        "slow_success", options=MockOptions(chunk_delay_ms=150), row={"firstTokenTimeoutMs": 400}
    ) as (run, _):
        assert text_of(await run.ask()) == SUCCESS


@pytest.mark.parametrize("behaviour", ["stall", "slow_success"])
@aio
async def test_a_cancelled_signal_ends_the_call_at_once(behaviour: str) -> None:
    signal = CancelToken()
    async with against(behaviour, options=MockOptions(chunk_delay_ms=60_000)) as (run, server):
        asyncio.get_running_loop().call_later(0.05, signal.cancel, "enough")
        started = asyncio.get_running_loop().time()
        chunks = await run.ask(signal=signal)
        await answered(server)

        assert reason_of(chunks) == {
            "kind": "aborted",
            "failure": {"message": "the request was cancelled", "code": "ABORTED"},
        }
        assert asyncio.get_running_loop().time() - started < 30
        assert server.requests[0].outcome in ("client_closed", "stalled")


@aio
async def test_a_signal_that_was_cancelled_before_asks_nobody() -> None:
    signal = CancelToken()
    signal.cancel("enough")
    async with against("success") as (run, server):
        assert reason_of(await run.ask(signal=signal))["kind"] == "aborted"
        assert server.requests == []


@aio
async def test_a_task_that_goes_down_is_not_mistaken_for_a_failure() -> None:
    async with against("stall") as (run, server):
        task = asyncio.ensure_future(run.ask())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await answered(server)
        assert server.requests[0].outcome == "stalled"


@aio
async def test_a_consumer_that_stops_drops_the_connection() -> None:
    async with against("slow_success", options=MockOptions(chunk_delay_ms=2000)) as (run, server):
        chunks = run.stream()
        await anext(chunks)
        await chunks.aclose()  # type: ignore[attr-defined]
        await answered(server)

        assert server.requests[0].outcome == "client_closed"


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (None, "MISSING_CREDENTIAL"),
        ("", "MISSING_CREDENTIAL"),
        (" \n", "MISSING_CREDENTIAL"),
        ("sk-ключ", "INVALID_CREDENTIAL"),
        ("sk-one two", "INVALID_CREDENTIAL"),
        ("sk-one\ntwo", "INVALID_CREDENTIAL"),
        ("sk-\x07", "INVALID_CREDENTIAL"),
    ],
)
@aio
async def test_a_bad_key_makes_no_traffic_and_is_never_shown(value: str | None, code: str) -> None:
    async with MockModelServer() as server:
        env = {"OTHER": value} if value is not None else {}
        async with wire(server.base_url, env, apiKeyEnv="OTHER") as run:
            failure = failure_of(await run.ask())

        assert failure["code"] == code
        assert "OTHER" in failure["message"]
        assert not value or not value.strip() or value not in failure["message"]
        assert "sk-" not in failure["message"]
        assert server.requests == []


@pytest.mark.parametrize("value", [f"{KEY}\n", f" {KEY}", f"\t{KEY} "])
@aio
async def test_white_space_around_a_key_is_dropped(value: str) -> None:
    async with (
        MockModelServer(api_key=KEY) as server,
        wire(server.base_url, {"DEEPSEEK_API_KEY": value}) as run,
    ):
        assert text_of(await run.ask()) == SUCCESS


@aio
async def test_a_missing_key_says_where_it_was_looked_for_and_what_to_do() -> None:
    async with wire("http://127.0.0.1:9", {"DEEPSEEK_API_KEY": ""}) as run:
        message = failure_of(await run.ask())["message"]

        assert "DEEPSEEK_API_KEY is not set" in message
        assert ".credentials.yaml" in message
        assert "export DEEPSEEK_API_KEY=" in message
        assert "--profile demo" in message


@aio
async def test_the_credentials_service_is_asked_where_there_is_one() -> None:
    class Store:
        asked = 0

        def resolve(self, ref: str) -> Credential | None:
            self.asked += 1
            return Credential("from-the-store", "file", "$DSH_HOME/.credentials.yaml")

    async with against("auth_error", "success") as (run, server):
        store = Store()
        run.ctx.provide(CREDENTIALS, store)
        message = failure_of(await run.ask())["message"]
        await run.ask()

        assert [sent.headers["authorization"] for sent in server.requests] == ["Bearer from-the-store"] * 2
        assert "$DSH_HOME/.credentials.yaml" in message
        assert store.asked == 2


# -- cost ------------------------------------------------------------------------------------------


@aio
async def test_a_long_stream_starts_no_task_and_no_timer_for_its_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reply = {"text": [f" tok{n}" for n in range(997)], "repeat": 3}
    async with against(reply, "success") as (run, _):
        loop = asyncio.get_running_loop()
        tasks, timers = 0, 0
        call_at = loop.call_at

        def factory(on: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> Any:
            nonlocal tasks
            tasks += 1
            return asyncio.Task(coro, loop=on, **more)

        def counted(*args: Any, **more: Any) -> Any:
            nonlocal timers
            timers += 1
            return call_at(*args, **more)

        loop.set_task_factory(factory)
        monkeypatch.setattr(loop, "call_at", counted)
        chunks = [chunk async for chunk in run.stream(user_message("go"))]
        loop.set_task_factory(None)

        assert len(chunks) == 3 * 997 + 4
        assert tasks < 20
        assert timers < 20


def test_nothing_of_the_network_is_imported_before_the_first_request() -> None:
    code = (
        "import sys; import dsh.plugins.llm, dsh.plugins.llm_deepseek, dsh.plugins.llm_offline; "
        "print([m for m in ('httpx', 'httpcore', 'h11', 'anyio', 'certifi') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert (run.stdout.strip(), run.stderr) == ("[]", "")


@aio
async def test_every_framing_that_the_standard_allows_reads_the_same() -> None:
    body = (
        b"\xef\xbb\xbf: keep-alive\n\n"
        b'data:{"choices":[{"index":0,"delta":{"content":"A"}}]}\r\n\r\n'
        b"event: message\nid: 7\nretry: 10\n"
        b'data: {"choices":\ndata: [{"index":0,"delta":{"content":"B"}}]}\n\n'
        b"data: [DONE]"
    ).decode()
    cuts = [[body], [body[:5], body[5:]], list(body), [body[:40], body[40:90], body[90:]]]
    async with against(*({"raw": cut} for cut in cuts)) as (run, _):
        for _cut in cuts:
            chunks = await run.ask()
            assert (text_of(chunks), reason_of(chunks)) == ("AB", {"kind": "stop"})


@aio
async def test_a_refused_member_is_told_in_the_servers_words_for_there_is_no_switch_to_name() -> None:
    said = "stream_options: Extra inputs are not permitted"
    async with against({"status": 400, "body": {"error": {"message": said}}}) as (run, _):
        assert failure_of(await run.ask())["message"] == said
