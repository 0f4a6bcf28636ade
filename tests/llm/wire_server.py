"""Servers and proxies of a few lines on real sockets, which keep their connections and count them."""

import asyncio
import base64
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

TLS = Path(__file__).parent.parent / "data" / "tls"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

Play = Callable[[int, asyncio.StreamWriter], Awaitable[bool | None]]
"""Answers the nth request of all, from 1; False where the connection ends with it."""


def certificate(name: str) -> ssl.SSLContext:
    """What a server shows: `server`, `other-host`, `expired` by our authority, `localhost` by none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / f"{name}.pem", TLS / f"{name}.key.pem")
    return context


class WireServer:
    """What a server saw."""

    def __init__(self) -> None:
        self.port = 0
        self.connections = 0
        self.requests: list[bytes] = []
        """Head and body of each."""
        self.ended = asyncio.Event()
        """A connection came to its end."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def tls_url(self) -> str:
        return f"https://localhost:{self.port}/"


def saying(*answers: bytes) -> Play:
    """Answer with these in turn, the last for ever."""

    async def play(number: int, writer: asyncio.StreamWriter) -> bool:
        writer.write(answers[min(number, len(answers)) - 1])
        return True

    return play


def response(body: bytes, *headers: str) -> bytes:
    """A whole answer of status 200 that leaves its connection open."""
    lines = ["HTTP/1.1 200 OK", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


@asynccontextmanager
async def serving(play: Play, tls: ssl.SSLContext | None = None) -> AsyncIterator[WireServer]:
    """A running server; it goes away with what is connected to it."""
    seen = WireServer()
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        seen.connections += 1
        with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                seen.requests.append(await read_request(reader))
                if await play(len(seen.requests), writer) is False:
                    break
                await writer.drain()
        seen.ended.set()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        tasks.discard(task)

    async with await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls) as server:
        seen.port = server.sockets[0].getsockname()[1]
        try:
            yield seen
        finally:
            for task in tuple(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            while tls and any("_accept_connection2" in repr(task) for task in asyncio.all_tasks()):
                await asyncio.sleep(0.001)  # a handshake that was refused, on its way out


async def read_request(reader: asyncio.StreamReader) -> bytes:
    """Head and body of one request."""
    head = await reader.readuntil(b"\r\n\r\n")
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return head + (await reader.readexactly(int(found[1])) if found else b"")


@asynccontextmanager
async def tunnelling(
    to: WireServer, *, user: str = "", tls: ssl.SSLContext | None = None
) -> AsyncIterator[WireServer]:
    """A proxy that lets every CONNECT through to one server, whatever host it names."""
    expected = f"Proxy-Authorization: Basic {base64.b64encode(user.encode()).decode()}\r\n".encode()

    async def play(number: int, writer: asyncio.StreamWriter) -> bool:
        if user and expected.lower() not in proxy.requests[number - 1].lower():
            writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            return True
        there, out = await asyncio.open_connection("127.0.0.1", to.port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        here: asyncio.StreamReader = writer._protocol._stream_reader  # type: ignore[attr-defined]
        await asyncio.gather(_pump(here, out), _pump(there, writer))
        return False

    async with serving(play, tls) as proxy:
        yield proxy


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
