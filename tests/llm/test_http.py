"""The shared client: what it loads and when, and what it makes of a broken exchange."""

import asyncio
import gc
import logging
import subprocess
import sys

import pytest

from dsh.capabilities import http
from dsh.capabilities.http import UNUSABLE_SETTINGS, UNUSABLE_URL, HttpClient, HttpError, host_of
from dsh.testing.mock_server import MockModelServer, MockOptions
from tests.aio import aio

ASK = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"say it"}]}'


@aio
async def test_a_body_is_read_piece_by_piece_to_its_end() -> None:
    client = HttpClient()
    async with MockModelServer(["success", "server_error"]) as server:
        for status in (200, 500):
            stream = await client.open("POST", f"{server.base_url}/chat/completions", headers={}, content=ASK)
            body = await stream.read_all(100_000)
            assert (stream.status, await stream.read(), body != b"") == (status, b"", True)
            assert stream.headers["x-request-id"] == MockOptions().request_id
            await stream.aclose()
        await client.aclose()


@aio
async def test_reading_stops_at_the_limit_it_was_given() -> None:
    client = HttpClient()
    async with MockModelServer(["gateway_page"]) as server:
        stream = await client.open("POST", f"{server.base_url}/chat/completions", headers={}, content=ASK)
        assert len(await stream.read_all(1000)) == 1000
        await stream.aclose()
        await client.aclose()


@aio
async def test_a_stream_that_is_left_early_leaves_no_task() -> None:
    client = HttpClient()
    async with MockModelServer(["slow_success", "success", "stall"]) as server:
        for _ in range(3):
            stream = await client.open("POST", f"{server.base_url}/chat/completions", headers={}, content=ASK)
            if server.requests[-1].behavior != "stall":
                await stream.read()
            await stream.aclose()
            gc.collect()
        await client.aclose()


@aio
async def test_closing_drops_the_connections_that_were_kept() -> None:
    client, is_left = HttpClient(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"{}")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await reader.read()
        is_left.set()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        stream = await client.open("POST", url, headers={}, content=b"{}")
        assert await stream.read_all(10) == b"ok"
        await stream.aclose()
        await asyncio.sleep(0.01)
        assert not is_left.is_set()

        await client.aclose()
        async with asyncio.timeout(30):
            await is_left.wait()


@aio
async def test_a_client_can_be_used_again_after_it_was_closed() -> None:
    client = HttpClient()
    async with MockModelServer(repeat_last=True) as server:
        for _ in range(2):
            stream = await client.open("POST", f"{server.base_url}/chat/completions", headers={}, content=ASK)
            await stream.aclose()
            await client.aclose()
    await HttpClient().aclose()


@pytest.mark.parametrize("url", ["http://127.0.0.1:9/", "http://[::1", "nonsense://x", "http://"])
@aio
async def test_no_connection_is_an_error_of_ours(url: str) -> None:
    client = HttpClient()
    with pytest.raises(HttpError):
        await client.open("GET", url, headers={})
    await client.aclose()


async def refused(url: str) -> HttpError:
    """What comes of a request that cannot reach its server."""
    client = HttpClient()
    with pytest.raises(HttpError) as caught:
        await client.open("GET", url, headers={})
    await client.aclose()
    return caught.value


@aio
async def test_the_cause_is_told_in_the_words_of_the_system_with_a_remedy() -> None:
    error = await refused("http://127.0.0.1:9/")
    assert (error.message, error.code) == ("Connection refused", "")
    assert error.hint == "check host and port"
    assert "host name" in (await refused("http://no-such-host.invalid/")).hint


@pytest.mark.parametrize(
    ("proxy", "without", "shown"),
    [
        ("http://user:pa55@127.0.0.1:9/", "", "Connection refused (through the proxy 127.0.0.1:9)"),
        ("127.0.0.1:9", "other.invalid", "Connection refused (through the proxy 127.0.0.1:9)"),
        ("http://127.0.0.1:8", "127.0.0.1", "Connection refused"),
    ],
)
@aio
async def test_the_proxy_in_between_is_named_without_its_password(
    monkeypatch: pytest.MonkeyPatch, proxy: str, without: str, shown: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", without)
    assert (await refused("http://127.0.0.1:9/")).message == shown


@aio
async def test_a_closed_client_holds_no_connection() -> None:
    gone = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        assert await reader.read() == b""
        writer.close()
        gone.set()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        client = HttpClient()
        stream = await client.open(
            "GET", f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", headers={}
        )
        assert await stream.read_all(100) == b"ok"
        await stream.aclose()
        assert not gone.is_set()
        await client.aclose()
        async with asyncio.timeout(5):
            await gone.wait()


@aio
async def test_tls_needs_a_server_that_speaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECT_TIMEOUT_S", 0.1)
    client = HttpClient()
    async with MockModelServer() as server:
        with pytest.raises(HttpError):
            await client.open("GET", f"https://127.0.0.1:{server.port}/", headers={})
        await client.aclose()


@aio
async def test_a_ca_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    client = HttpClient()
    for _ in range(2):
        with pytest.raises(HttpError, match="CA store") as caught:
            await client.open("GET", "https://127.0.0.1:9/", headers={})
        assert "SSL_CERT_FILE" in caught.value.hint
        assert caught.value.code == UNUSABLE_SETTINGS
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(HttpError, match="Connection refused"):
        await client.open("GET", "https://127.0.0.1:9/", headers={})
    await client.aclose()


@aio
async def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "socks9://x")
    client = HttpClient()
    with pytest.raises(HttpError, match="proxy") as caught:
        await client.open("GET", "http://127.0.0.1:9/", headers={})
    assert caught.value.code == UNUSABLE_SETTINGS
    await client.aclose()


@aio
async def test_a_client_that_was_only_warmed_leaves_nothing_behind() -> None:
    client = HttpClient()
    client.warm("https://example.invalid/")
    client.warm("https://example.invalid/")
    await client.aclose()
    assert len(asyncio.all_tasks()) == 1


PROGRAM = """
import asyncio, sys
from dsh.capabilities import http
from dsh.capabilities.http import UNUSABLE_SETTINGS, HttpClient
from dsh.testing.mock_server import MockModelServer

async def main():
    client = HttpClient()
    before = {m for m in ("httpx", "anyio", "certifi") if m in sys.modules}
    async with MockModelServer() as server:
        stream = await client.open("POST", server.base_url + "/chat/completions", headers={}, content=b"{}")
        await stream.read_all(100000)
        await stream.aclose()
    await client.aclose()
    heavy = {m for m in ("click", "rich", "pygments", "httpx._main") if m in sys.modules}
    print(before, heavy, client._tls.cert_store_stats()["x509_ca"])

asyncio.run(main())
"""


def test_plain_http_loads_no_ca_store_and_no_command_line_library() -> None:
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)

    assert (run.stdout, run.stderr) == ("set() set() 0\n", "")


@pytest.mark.parametrize("host", ["256.1.1.1", "xn--a", "[v1.a]", "１２７.0.0.1"])
@aio
async def test_what_only_looks_like_a_url_is_told_and_is_no_fault_of_the_network(host: str) -> None:
    client = HttpClient()
    with pytest.raises(HttpError) as caught:
        await client.open("GET", f"http://{host}:9/?key=pa55", headers={"x": "pa55"})
    await client.aclose()

    assert (caught.value.code, caught.value.hint) == (UNUSABLE_URL, "check the base URL")
    assert "pa55" not in caught.value.message


@aio
async def test_what_the_library_logs_holds_no_url(caplog: pytest.LogCaptureFixture) -> None:
    client = HttpClient()
    with caplog.at_level(logging.DEBUG):
        async with MockModelServer(["success"]) as server:
            url = f"{server.base_url}/chat/completions?key=pa55"
            stream = await client.open("POST", url, headers={"authorization": "Bearer pa55"}, content=ASK)
            await stream.aclose()
            await client.aclose()

    assert "receive_response_headers" in caplog.text
    assert "pa55" not in caplog.text


def test_a_url_is_shown_without_what_is_secret_in_it() -> None:
    assert host_of("https://user:pw@host:8443/v1?key=1#x") == "https://host:8443/v1"
    assert host_of("http://[::1]:80/v1") == "http://[::1]:80/v1"
    assert host_of("http://[broken") == "the configured base URL"
    for url in ("http://h:99999999/", "user:pw@host/v1", "ftp://user:pw@host/", "host", ""):
        assert host_of(url) == "the configured base URL"
    assert host_of(f"http://h/{'p' * 300}") == f"http://h/{'p' * 199}…"
