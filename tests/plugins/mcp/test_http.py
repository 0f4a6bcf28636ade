"""Servers over HTTP that refuse, redirect, hang, or send too much."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.aio import aio
from tests.plugins.mcp.kit import call, names, serving, text, tool
from tests.plugins.mcp.test_start import told

Handler = Callable[[str, dict[str, str], Any, asyncio.StreamWriter], Awaitable[None]]
INIT = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "h", "version": "1"}}


def row(url: str, **more: Any) -> dict[str, Any]:
    return {
        "transport": "streamable-http",
        "serverName": "web",
        "url": url,
        "reconnect": {"enabled": False},
        "startupTimeoutMs": 5_000,
        **more,
    }


@asynccontextmanager
async def listening(handler: Handler) -> AsyncIterator[tuple[str, list[tuple[str, dict[str, str]]]]]:
    """A server that reads one request a connection; its URL, and what was asked with which headers."""
    asked: list[tuple[str, dict[str, str]]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in rest if line)
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            asked.append((first, headers))
            await handler(first.split()[0], headers, json.loads(body) if body else None, writer)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp", asked


def reply(writer: asyncio.StreamWriter, status: str, body: bytes = b"", *headers: str) -> None:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
    writer.write("\r\n".join([*head, "", ""]).encode() + body)


def answer(writer: asyncio.StreamWriter, request: Any, result: Any, *headers: str) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
    reply(writer, "200 OK", body, "Content-Type: application/json", *headers)


async def healthy(method: str, headers: dict[str, str], request: Any, writer: asyncio.StreamWriter) -> None:
    if method != "POST":
        reply(writer, "405 Method Not Allowed")
    elif "id" not in request:
        reply(writer, "202 Accepted")
    elif request["method"] == "initialize":
        answer(writer, request, INIT)
    elif request["method"] == "tools/list":
        answer(writer, request, {"tools": [tool("t")]})
    else:
        answer(writer, request, {"content": [{"type": "text", "text": "done"}]})


@aio
async def test_headers_go_with_each_request_and_are_never_told(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(healthy) as (url, asked):
        async with serving(row(url, headers={"X-Api-Key": "hush-hush"})) as ctx:
            assert text(await call(ctx, "mcp__web__t")) == "done"
    posts = [headers for first, headers in asked if first.startswith("POST")]
    assert len(posts) >= 4
    assert all(headers["x-api-key"] == "hush-hush" for headers in posts)
    assert "hush" not in caplog.text


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("401 Unauthorized", "HTTP 401 Unauthorized"),
        ("403 Forbidden", "HTTP 403 Forbidden"),
        ("404 Not Found", "HTTP 404 Not Found"),
        ("500 Internal Server Error", "HTTP 500 Internal Server Error"),
        ("302 Found\r\nLocation: http://127.0.0.1:9/elsewhere", "not followed"),
        ("200 OK\r\nContent-Type: text/html", "Unexpected content type: text/html"),
    ],
)
@aio
async def test_a_refusal_is_told_with_its_status(
    status: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(method: str, headers: Any, request: Any, writer: asyncio.StreamWriter) -> None:
        reply(writer, status, b"no")

    async with listening(refuse) as (url, _):
        async with serving(row(url)) as ctx:
            assert names(ctx) == []
    assert reason in told(caplog, "web")[0]


@aio
async def test_nobody_there_is_told(caplog: pytest.LogCaptureFixture) -> None:
    async with listening(healthy) as (url, _):
        pass
    async with serving(row(url)) as ctx:
        assert names(ctx) == []
    assert (
        f"ConnectError: All connection attempts failed; asked was {url.removesuffix('/mcp')}"
        in told(caplog, "web")[0]
    )


@aio
async def test_a_server_is_asked_through_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(healthy) as (proxy, asked):
        monkeypatch.setenv("http_proxy", proxy.removesuffix("/mcp"))
        async with serving(row("http://mcp.invalid/mcp")) as ctx:
            assert text(await call(ctx, "mcp__web__t")) == "done"
    assert "POST http://mcp.invalid/mcp HTTP/1.1" in {first for first, _ in asked}


@aio
async def test_a_proxy_that_cannot_be_used_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("http_proxy", "ftp://user:hush-hush@proxy.invalid")
    async with serving(row("http://mcp.invalid/mcp")) as ctx:
        assert names(ctx) == []
    [line] = told(caplog, "web")
    assert "the proxy cannot be used" in line
    assert "hush" not in line


@aio
async def test_headers_do_not_follow_a_redirect_to_another_origin() -> None:
    async with listening(healthy) as (elsewhere, asked):

        async def redirect(method: str, headers: Any, request: Any, writer: asyncio.StreamWriter) -> None:
            reply(writer, "307 Temporary Redirect", b"", f"Location: {elsewhere}")

        async with listening(redirect) as (url, _):
            async with serving(row(url, headers={"X-Api-Key": "hush-hush"})) as ctx:
                assert names(ctx) == []
    assert asked == []


@aio
async def test_a_server_that_never_answers_costs_its_own_bound(caplog: pytest.LogCaptureFixture) -> None:
    over, has_ended = asyncio.Event(), asyncio.Event()

    async def hang(method: str, headers: Any, request: Any, writer: asyncio.StreamWriter) -> None:
        await over.wait()
        has_ended.set()

    async with listening(hang) as (url, _):
        async with serving(row(url, startupTimeoutMs=300)) as ctx:
            assert names(ctx) == []
        over.set()
        await has_ended.wait()
    assert "within 300 ms" in told(caplog, "web")[0]


@pytest.mark.parametrize("kind", ["application/json", "text/event-stream"])
@aio
async def test_an_answer_that_outgrows_memory_is_given_up(kind: str) -> None:
    async def flood(method: str, headers: Any, request: Any, writer: asyncio.StreamWriter) -> None:
        if not (request and request.get("method") == "tools/call"):
            await healthy(method, headers, request, writer)
            return
        result = {"content": [{"type": "text", "text": "x" * (17 << 20)}]}
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n"
        stream = body if kind == "application/json" else f"data: {body}\n\n"
        writer.write((head + stream).encode())
        await writer.drain()

    async with listening(flood) as (url, _):
        async with serving(row(url, reconnect={"initialDelayMs": 10})) as ctx:
            result = await asyncio.wait_for(call(ctx, "mcp__web__t"), 20)
            assert result.is_error


@aio
async def test_nobody_waits_for_a_server_that_does_not_say_farewell(caplog: pytest.LogCaptureFixture) -> None:
    over, has_ended = asyncio.Event(), asyncio.Event()

    async def clinging(method: str, headers: Any, request: Any, writer: asyncio.StreamWriter) -> None:
        if method == "DELETE":
            await over.wait()
            has_ended.set()
        elif request and request.get("method") == "initialize":
            answer(writer, request, INIT, "Mcp-Session-Id: s")
        else:
            await healthy(method, headers, request, writer)

    async with listening(clinging) as (url, _):
        async with serving(row(url)):
            pass
        over.set()
        await has_ended.wait()
    assert told(caplog, "web") == []


@aio
async def test_a_session_that_the_server_forgot_is_made_anew() -> None:
    lives = 0

    async def forgetful(method: str, headers: Any, request: Any, writer: asyncio.StreamWriter) -> None:
        nonlocal lives
        asked = request.get("method") if method == "POST" else ""
        if asked == "initialize":
            lives += 1
            answer(writer, request, INIT, f"Mcp-Session-Id: s{lives}")
        elif asked == "tools/call" and headers["mcp-session-id"] == "s1":
            reply(writer, "404 Not Found")
        else:
            await healthy(method, headers, request, writer)

    async with listening(forgetful) as (url, _):
        async with serving(row(url, reconnect={"initialDelayMs": 10})) as ctx:
            lost = await call(ctx, "mcp__web__t")
            found = await call(ctx, "mcp__web__t")

            assert "it has forgotten the session" in text(lost)
            assert text(found) == "done"


NO_PING = {"error": {"code": -32601, "message": "no such method"}}


@pytest.mark.parametrize(
    ("ping", "lives"),
    [("refused", 2), ("silent", 2), ({"result": {}}, 1), (NO_PING, 1), ({"result": []}, 2)],
)
@aio
async def test_a_refused_call_costs_the_connection_only_where_the_server_is_not_well(
    ping: Any, lives: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Servers that were started anew refuse an unknown session with 400; others mean this one call by it."""
    monkeypatch.setattr("dsh.plugins.mcp_client.server.HEALTH_S", 0.3)
    lived, over, has_ended = 0, asyncio.Event(), asyncio.Event()

    async def picky(method: str, headers: dict[str, str], request: Any, writer: asyncio.StreamWriter) -> None:
        nonlocal lived
        asked = request.get("method") if method == "POST" else ""
        lived += asked == "initialize"
        if asked == "ping" and ping == "silent":
            await over.wait()
            has_ended.set()
        elif asked == "ping" and ping != "refused":
            body = json.dumps({"jsonrpc": "2.0", "id": request["id"], **ping}).encode()
            reply(writer, "200 OK", body, "Content-Type: application/json")
        elif lived == 1 and (asked == "ping" or (asked == "tools/call" and request["params"]["arguments"])):
            reply(writer, "400 Bad Request", b"no valid session")
        else:
            await healthy(method, headers, request, writer)

    async with listening(picky) as (url, _):
        async with serving(row(url, reconnect={"initialDelayMs": 10})) as ctx:
            refused = await call(ctx, "mcp__web__t", odd=True)
            again = await call(ctx, "mcp__web__t")

            assert refused.is_error
            assert text(again) == "done"
            assert lived == lives
        over.set()
        if ping == "silent":
            await has_ended.wait()


@aio
async def test_a_stream_that_a_server_does_not_offer_is_not_told_as_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Most servers refuse GET; it says nothing of why a later connection fails."""

    async def dying(method: str, headers: dict[str, str], request: Any, writer: asyncio.StreamWriter) -> None:
        asked = request.get("method") if method == "POST" else ""
        if asked == "initialize":
            answer(writer, request, INIT, "Mcp-Session-Id: s")
        elif asked != "tools/call":
            await healthy(method, headers, request, writer)

    async with listening(dying) as (url, asked):
        async with serving(row(url)) as ctx:
            async with asyncio.timeout(20):
                while not any(first.startswith("GET") for first, _ in asked):
                    await asyncio.sleep(0.01)
            assert (await call(ctx, "mcp__web__t")).is_error
            async with asyncio.timeout(20):
                while not told(caplog, "web"):
                    await asyncio.sleep(0.01)
    assert "405" not in told(caplog, "web")[0]


@aio
async def test_a_server_that_goes_away_and_comes_back_is_found_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    is_down = False

    async def flaky(method: str, headers: Any, request: Any, writer: asyncio.StreamWriter) -> None:
        if not is_down:
            await healthy(method, headers, request, writer)

    async with listening(flaky) as (url, _):
        async with serving(row(url, reconnect={"initialDelayMs": 50})) as ctx:
            is_down = True
            lost = await asyncio.wait_for(call(ctx, "mcp__web__t"), 20)
            is_down = False
            found = await asyncio.wait_for(call(ctx, "mcp__web__t"), 20)

            assert lost.is_error
            assert text(found) == "done"
