"""A server of a few lines on a real socket, for what the mock model server cannot be made to do."""

import contextlib
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator

Play = Callable[[socket.socket], None]
"""Answers one request, whose bytes have been read."""

STREAM = (
    b'data: {"choices":[{"index":0,"delta":{"content":"fine"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    b"data: [DONE]\n\n"
)


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def response(status: str, body: bytes = b"", **headers: str) -> bytes:
    """A whole HTTP response that ends its connection; `_` in a header's name stands for `-`."""
    lines = [f"HTTP/1.1 {status}", "connection: close", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def saying(*pieces: bytes) -> Play:
    """Send these pieces, each in a packet of its own as far as the system lets it, and close."""

    def play(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)

    return play


def streaming(*pieces: bytes) -> Play:
    """Send these pieces as a stream whose end is that of the connection."""
    return saying(HEAD, *pieces)


class RawServer:
    """Plays the same for every connection, and keeps what it was sent."""

    def __init__(self, play: Play, tls: ssl.SSLContext | None) -> None:
        self.requests: list[bytes] = []
        self._play, self._tls = play, tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while not self._end.is_set():
            connection, _ = self._socket.accept()
            with contextlib.suppress(OSError), connection:
                connection.settimeout(10)
                plain = self._tls.wrap_socket(connection, server_side=True) if self._tls else connection
                with plain:
                    self.requests.append(_request(plain))
                    self._play(plain)

    def close(self) -> None:
        self._end.set()
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        self._thread.join(10)
        self._socket.close()


def _request(connection: socket.socket) -> bytes:
    """Head and body of a request; a connection that ends before is an OSError."""
    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0 or len(data) < end + 4 + _length(data[:end]):
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionError("no whole request")
        data += piece
    return data


def _length(head: bytes) -> int:
    found = re.search(rb"\r\ncontent-length: *(\d+)", head, re.IGNORECASE)
    return int(found[1]) if found else 0


@contextlib.contextmanager
def serving(play: Play, *, tls: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    """A running server."""
    server = RawServer(play, tls)
    try:
        yield server
    finally:
        server.close()
