"""Connections of the shared client: used again, found dead, given up; what servers do with HTTP itself."""

import asyncio
import gzip
import socket
import zlib

import pytest
import zstandard

from dsh.capabilities import http
from dsh.capabilities.http import HttpClient, HttpError, HttpStream
from tests.aio import aio
from tests.llm.wire_server import OK, Play, WireServer, response, saying, serving

BODY = b'data: {"choices":[{"index":0,"delta":{"content":"fine"}}]}\n\n' * 40


async def fetch(client: HttpClient, server: WireServer, content: bytes = b"{}") -> bytes:
    stream = await client.open("POST", server.url, headers={}, content=content)
    try:
        return await stream.read_all(1_000_000)
    finally:
        await stream.aclose()


async def answer_to(answer: bytes) -> bytes:
    client = HttpClient()
    async with serving(saying(answer)) as server:
        try:
            return await fetch(client, server)
        finally:
            await client.aclose()


@aio
async def test_requests_one_after_another_share_a_connection() -> None:
    client = HttpClient()
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    refusal = b"HTTP/1.1 429 Slow\r\ncontent-length: 4\r\n\r\nslow"
    async with serving(saying(OK, chunked, refusal, OK)) as server:
        for expected in (b"ok", b"ok", b"slow", b"ok", b"ok"):
            assert await fetch(client, server, b"x" * 1000) == expected
        await client.aclose()

    assert (server.connections, len(server.requests)) == (1, 5)


@aio
async def test_requests_at_the_same_time_have_a_connection_each() -> None:
    client = HttpClient()
    async with serving(saying(OK)) as server:
        assert await asyncio.gather(*(fetch(client, server) for _ in range(5))) == [b"ok"] * 5
        await client.aclose()
        assert server.connections <= 5


@aio
async def test_a_connection_is_kept_over_a_tool_call_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "KEEP_ALIVE_S", 0.05)
    client = HttpClient()
    async with serving(saying(OK)) as server:
        await fetch(client, server)
        await fetch(client, server)
        await asyncio.sleep(0.1)
        await fetch(client, server)
        await client.aclose()

    assert server.connections == 2


@aio
async def test_a_kept_connection_that_the_server_closed_meanwhile_is_replaced() -> None:
    async def play(_: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(OK)  # promises to stay
        return False

    client = HttpClient()
    async with serving(play) as server:
        for _ in range(3):
            assert await fetch(client, server) == b"ok"
            await server.ended.wait()
            await asyncio.sleep(0.01)
        await client.aclose()

    assert (server.connections, len(server.requests)) == (3, 3)


@aio
async def test_a_connection_that_dies_under_a_request_fails_that_request_alone() -> None:
    async def play(number: int, writer: asyncio.StreamWriter) -> bool:
        if number == 2:
            writer.get_extra_info("socket").setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0"
            )
            writer.transport.abort()
            return False
        writer.write(OK)
        return True

    client = HttpClient()
    async with serving(play) as server:
        assert await fetch(client, server) == b"ok"
        with pytest.raises(HttpError) as caught:
            await fetch(client, server)
        assert await fetch(client, server) == b"ok"
        await client.aclose()

    assert caught.value.message
    assert (server.connections, len(server.requests)) == (2, 3)


@aio
async def test_a_stream_that_was_left_is_not_used_again() -> None:
    async def play(_: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")
        return True

    client = HttpClient()
    async with serving(play) as server:
        for _ in range(2):
            stream = await client.open("POST", server.url, headers={}, content=b"{}")
            assert await stream.read() == b"ok"
            await stream.aclose()
        await client.aclose()

    assert server.connections == 2


@pytest.mark.parametrize(
    "before",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 3,
        b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\n",
    ],
)
@aio
async def test_interim_answers_are_passed_over(before: bytes) -> None:
    assert await answer_to(before + OK) == b"ok"


@pytest.mark.parametrize("size", [1, 60_000])
@aio
async def test_headers_of_a_usual_size_are_read(size: int) -> None:
    assert await answer_to(response(b"ok", "x-long: " + "a" * size)) == b"ok"
    assert await answer_to(response(b"ok", *(f"x-{n}: {n}" for n in range(500)))) == b"ok"


@aio
async def test_headers_without_end_are_cut_off() -> None:
    async def play(_: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        for n in range(40_000):
            writer.write(b"x-%d: y\r\n" % n)
            await writer.drain()
        return True

    client = HttpClient()
    async with serving(play) as server:
        with pytest.raises(HttpError, match="too long"):
            await fetch(client, server)
        await client.aclose()


ENCODED = {
    "gzip": gzip.compress(BODY),
    "GZIP": gzip.compress(BODY),
    "deflate": zlib.compress(BODY),
    "zstd": zstandard.compress(BODY),
    "gzip, identity": gzip.compress(BODY),
    "deflate, gzip": gzip.compress(zlib.compress(BODY)),
    "identity": BODY,
}


@pytest.mark.parametrize("encoding", ENCODED)
@aio
async def test_an_encoding_that_was_not_asked_for_is_undone(encoding: str) -> None:
    assert await answer_to(response(ENCODED[encoding], f"content-encoding: {encoding}")) == BODY


@aio
async def test_an_encoded_stream_is_read_as_it_comes() -> None:
    """What the server has flushed is there before the stream ends."""
    compress, go_on = zlib.compressobj(wbits=31), asyncio.Event()

    async def play(_: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\nconnection: close\r\n\r\n")
        writer.write(compress.compress(b"first") + compress.flush(zlib.Z_SYNC_FLUSH))
        await go_on.wait()
        writer.write(compress.compress(b"second") + compress.flush())
        return False

    client = HttpClient()
    async with serving(play) as server:
        stream = await client.open("POST", server.url, headers={}, content=b"{}")
        assert await stream.read() == b"first"
        go_on.set()
        assert await stream.read_all(100) == b"second"
        await stream.aclose()
        await client.aclose()


@pytest.mark.parametrize("encoding", ["br", "gzip, br", "compress", "nonsense" * 50])
@aio
async def test_an_encoding_that_cannot_be_undone_is_named(encoding: str) -> None:
    with pytest.raises(HttpError, match="encoded as") as caught:
        await answer_to(response(b"\x8b\x01\x80ok\x03", f"content-encoding: {encoding}"))

    assert caught.value.code == "MALFORMED_RESPONSE"
    assert len(caught.value.message) < 120


@pytest.mark.parametrize("encoding", ["gzip", "zstd"])
@aio
async def test_a_body_that_is_not_what_its_encoding_says_is_an_error(encoding: str) -> None:
    with pytest.raises(HttpError):
        await answer_to(response(BODY, f"content-encoding: {encoding}"))


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\nconnection: close\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nff\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"",
    ],
)
@aio
async def test_an_answer_that_breaks_http_is_an_error_of_ours(raw: bytes) -> None:
    async def play(_: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(raw)
        return False

    client = HttpClient()
    async with serving(play) as server:
        with pytest.raises(HttpError) as caught:
            await fetch(client, server)
        await client.aclose()

    assert caught.value.message


@aio
async def test_a_server_that_never_accepts_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "CONNECT_TIMEOUT_S", 0.2)
    client, fillers = HttpClient(), []
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):  # what is queued fills its backlog
            fillers.append(socket.socket())
            fillers[-1].setblocking(False)
            fillers[-1].connect_ex(address)
        with pytest.raises(HttpError, match="no connection within") as caught:
            await client.open("GET", f"http://127.0.0.1:{address[1]}/", headers={})
        for filler in fillers:
            filler.close()
    await client.aclose()

    assert "host, port and network" in caught.value.hint


def ignoring(wait: asyncio.Event) -> Play:
    async def play(_: int, __: asyncio.StreamWriter) -> bool:
        await wait.wait()
        return False

    return play


@aio
async def test_a_request_can_be_cancelled_while_it_waits_and_leaves_nothing() -> None:
    client, wait = HttpClient(), asyncio.Event()
    async with serving(ignoring(wait)) as server:
        opening: asyncio.Task[HttpStream] = asyncio.ensure_future(
            client.open("POST", server.url, headers={}, content=b"{}")
        )
        while not server.requests:
            await asyncio.sleep(0.001)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        wait.set()
        await server.ended.wait()
        await client.aclose()
