"""The SDK's streams over the pipes of a child: one JSON message a line, in both directions.

Importing this module loads the SDK.
"""

import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp_types import INTERNAL_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter
from pydantic import ValidationError

from dsh.capabilities.subprocess import ByteReader, ByteWriter
from dsh.plugins.mcp_client.lines import Lines
from dsh.session.value import clean


@asynccontextmanager
async def piped(
    reader: ByteReader, writer: ByteWriter, noise: Callable[[bytes], None]
) -> AsyncIterator[TransportStreams]:
    """Streams that end when the child closes its output. What it prints besides messages goes to `noise`."""
    into, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, out = anyio.create_memory_object_stream[SessionMessage](0)
    async with into, read, write, out, anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, reader, into, noise)
        tasks.start_soon(_send, out, writer)
        try:
            yield read, write
        finally:
            tasks.cancel_scope.cancel()


async def _receive(
    reader: ByteReader,
    into: "MemoryObjectSendStream[SessionMessage | Exception]",
    noise: Callable[[bytes], None],
) -> None:
    lines = Lines()
    async with into:
        with contextlib.suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            while data := await reader.read():
                for line in lines.feed(data):
                    await _take(line, into, noise)
            if rest := lines.end():
                await _take(rest, into, noise)


async def _take(
    line: bytes,
    into: "MemoryObjectSendStream[SessionMessage | Exception]",
    noise: Callable[[bytes], None],
) -> None:
    message = message_of(line)
    if message is None:
        noise(line)
    else:
        await into.send(message)


def message_of(line: bytes) -> SessionMessage | None:
    """The message on a line; None where there is none. Half characters in it become U+FFFD.

    An answer that breaks the protocol is an error of the request that it names, so that nobody waits for it.
    """
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except (ValidationError, ValueError):
        pass
    if not line.startswith(b"{"):
        return None
    try:
        value: Any = clean(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        begun = _BEGUN_ANSWER.match(line)
        return _broken(int(begun[1])) if begun else None
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_python(value, by_name=False))
    except (ValidationError, RecursionError):
        is_answer = "jsonrpc" in value and "method" not in value and isinstance(value.get("id"), int | str)
        return _broken(value["id"]) if is_answer else None


_BEGUN_ANSWER = re.compile(rb'{\s*"jsonrpc"\s*:\s*"2.0"\s*,\s*"id"\s*:\s*(\d{1,9})\s*,\s*"result"')
"""How servers write an answer that is then no JSON, or nested too deeply to be read."""


def _broken(request_id: int | str) -> SessionMessage:
    error = ErrorData(code=INTERNAL_ERROR, message="its answer breaks the protocol")
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


async def _send(out: "MemoryObjectReceiveStream[SessionMessage]", writer: ByteWriter) -> None:
    async with out:
        async for message in out:
            text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await writer.write(text.encode() + b"\n")
