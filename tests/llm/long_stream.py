"""Reads a stream of very many chunks without a log and prints how memory grew, in KiB: run as a program.

`python -m tests.llm.long_stream WIRE CHUNKS`. The server is a process of its own.
"""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsh.capabilities.http import HttpClient
from dsh.llm.anthropic.translator import MessagesTranslator
from dsh.llm.chat.translator import ChatTranslator
from dsh.llm.transport.attempt import Attempt
from dsh.llm.transport.endpoint import Endpoint
from dsh.llm.transport.translator import Failures, Translator
from dsh.llm.transport.watchdog import StreamLimits

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
WARM = 20_000
"""Chunks before the first look."""


def event(data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (str(data.get("type", "message")).encode(), json.dumps(data).encode())


def parts(wire: str) -> tuple[bytes, Callable[[str], bytes], bytes]:
    """How a reply of text begins, goes on and ends."""
    if wire == "anthropic":
        usage = {"input_tokens": 1, "output_tokens": 1}
        begin = event({"type": "message_start", "message": {"id": "m", "usage": usage}}) + event(
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        )
        end = (
            event({"type": "content_block_stop", "index": 0})
            + event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage})
            + event({"type": "message_stop"})
        )
        return (
            begin,
            lambda text: event(
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
            ),
            end,
        )
    stop = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    return (
        b"",
        lambda text: event({"choices": [{"index": 0, "delta": {"content": text}}]}),
        stop + b"data: [DONE]\n\n",
    )


def serve(listener: socket.socket, wire: str, chunks: int) -> None:
    begin, delta, end = parts(wire)
    block = b"".join(delta(f" tok{n}") for n in range(1000))
    connection, _ = listener.accept()
    data = b""
    while not data.endswith(b"{}"):
        data += connection.recv(65536)
    connection.sendall(HEAD + begin)
    for _ in range(chunks // 1000):
        connection.sendall(block)
    connection.sendall(end)
    connection.close()


def memory_kib(name: str) -> int:
    """`VmRSS`, resident now, or `VmHWM`, the most that was. (`ru_maxrss` counts the parent's as well.)"""
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


async def read(port: int, wire: str) -> tuple[int, int]:
    """How many chunks came, and by how much memory grew at its highest."""

    def translator(failures: Failures) -> Translator:
        return MessagesTranslator(failures) if wire == "anthropic" else ChatTranslator(failures)

    client = HttpClient()
    endpoint = Endpoint(
        url=f"http://127.0.0.1:{port}/",
        headers={},
        provider="TestAI",
        shown_url="http://127.0.0.1",
        secret="",
        limits=StreamLimits(idle_ms=60_000),
        key_origin="",
    )
    count = before = 0
    async for _ in Attempt(client, endpoint, translator).stream(b"{}"):
        count += 1
        if count == WARM:
            before = memory_kib("VmRSS")
    grown = memory_kib("VmHWM") - before
    await client.aclose()
    return count, grown


def main(wire: str, chunks: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        child = os.fork()
        if not child:
            serve(listener, wire, chunks)
            os._exit(0)
        count, grown = asyncio.run(read(listener.getsockname()[1], wire))
        sys.stdout.write(f"{count} {grown}\n")
        os.waitpid(child, 0)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
