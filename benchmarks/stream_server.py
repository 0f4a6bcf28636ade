"""A model server that streams as fast as it can: its bytes are made once, before anything is timed.

Run as a program of its own so that its time is nobody else's: `python -m benchmarks.stream_server FILE`
writes its address to FILE and serves until it is killed. The path says which wire format is spoken:
`/v1/chat/completions` as DeepSeek, `/openai/v1/chat/completions` as OpenAI, `/v1/messages` as Anthropic. The
request's model name says what to send: `job` (one bash call, then an answer), `text-N` (one reply of N text
deltas), `arguments-N` (one bash call, its arguments in N fragments, then an answer), `turns-N` (N bash calls,
one a step, then an answer).
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.wire_bytes import call_reply, text_reply

MANY = 50_000


def wire_of(path: str) -> str:
    if path.endswith("/messages"):
        return "anthropic"
    return "openai" if path.startswith("/openai/") else "deepseek"


def answer(wire: str, body: Any) -> bytes:
    kind, _, count = body["model"].partition("-")
    done = sum(results(message) for message in body["messages"])
    if kind == "text":
        return text_reply(wire, int(count))
    wanted = int(count) if kind == "turns" else 1
    if done >= wanted:
        return text_reply(wire, 2)
    return call_reply(wire, done + 1, int(count) if kind == "arguments" else 1)


def results(message: Any) -> int:
    """Tool results in a message of either format."""
    if message["role"] == "tool":
        return 1
    content = message.get("content")
    return sum(block.get("type") == "tool_result" for block in content) if isinstance(content, list) else 0


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.decode("latin-1").lower().split("\r\n")
            length = next(int(line[15:]) for line in lines if line.startswith("content-length:"))
            body = json.loads(await reader.readexactly(length))
            writer.write(answer(wire_of(lines[0].split(" ")[1]), body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main(ready: Path) -> None:
    for wire in ("deepseek", "openai", "anthropic"):
        for deltas in (1, MANY, MANY * 10):
            text_reply(wire, deltas)
        call_reply(wire, 1, MANY)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 26)
    address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await asyncio.to_thread(ready.write_text, address)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
