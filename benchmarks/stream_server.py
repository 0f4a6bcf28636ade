"""A model server that streams as fast as it can: its bytes are made once, before anything is timed.

Run as a program of its own so that its time is nobody else's: `python -m benchmarks.stream_server FILE`
writes its base URL to FILE and serves until it is killed. The request's model name says what to send:
`job` (one bash call, then an answer), `text-N` (one reply of N text deltas), `turns-N` (N bash calls, one
a step, then an answer).
"""

import asyncio
import json
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

USAGE = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: keep-alive\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
PIECE_BYTES = 4096
"""What one write holds: some twenty events, as a busy provider sends them."""


def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    payload = {"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1, "choices": [choice]}
    if finish:
        payload["usage"] = USAGE
    return b"data: " + json.dumps(payload, separators=(",", ":")).encode() + b"\n\n"


def framed(events: list[bytes]) -> bytes:
    """The whole response: events grouped into pieces, each an HTTP chunk."""
    pieces, current = [], b""
    for one in events:
        current += one
        if len(current) >= PIECE_BYTES:
            pieces.append(current)
            current = b""
    pieces.append(current + b"data: [DONE]\n\n")
    return HEAD + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"


@lru_cache
def text_reply(deltas: int) -> bytes:
    words = [event({"content": f" tok{n % 997}"}) for n in range(deltas)]
    return framed([event({"role": "assistant", "content": ""}), *words, event({}, "stop")])


@lru_cache
def tool_reply(number: int) -> bytes:
    arguments = json.dumps({"command": f"echo {number}", "description": "say a number"})
    call = {"index": 0, "id": f"call-{number}", "type": "function"}
    return framed(
        [
            event({"role": "assistant", "content": ""}),
            event({"tool_calls": [{**call, "function": {"name": "bash", "arguments": ""}}]}),
            event({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}),
            event({}, "tool_calls"),
        ]
    )


def answer(body: Any) -> bytes:
    kind, _, count = body["model"].partition("-")
    done = sum(message["role"] == "tool" for message in body["messages"])
    if kind == "text":
        return text_reply(int(count))
    wanted = int(count) if kind == "turns" else 1
    return tool_reply(done + 1) if done < wanted else text_reply(2)


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").lower().split("\r\n")
            length = next(int(line[15:]) for line in lines if line.startswith("content-length:"))
            body = json.loads(await reader.readexactly(length))
            writer.write(answer(body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main(ready: Path) -> None:
    for deltas in (1, 50_000, 500_000):
        text_reply(deltas)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    await asyncio.to_thread(ready.write_text, url)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
