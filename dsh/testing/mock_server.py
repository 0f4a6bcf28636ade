"""A model server that is real on the wire and scripted in what it says: the counterpart of every test.

In process: `async with MockModelServer(["success"]) as server: … server.base_url`. For a program under test:
`with MockModelServer(script).in_thread() as server:`. From a shell: `python -m dsh.testing.mock_server`.

Each accepted `POST …/chat/completions` plays the next entry of the script: the name of a behaviour, or a
free-form reply (`dsh.testing.mock_reply.scripted`). A wrong method, path, token or body consumes nothing.
"""

import asyncio
import contextlib
import json
import random
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from dsh.testing.mock_behaviour import BEHAVIOURS, RANDOM_WEIGHTS
from dsh.testing.mock_reply import MockOptions, Outcome, Pause, Plan, Reset, Stall, error_plan, scripted

Entry: TypeAlias = str | Mapping[str, Any]
"""A behaviour's name, or a free-form reply."""
MAX_HEAD_BYTES = 1024 * 1024
SESSION_HEADER = "x-deepseek-harness-session-id"


class RecordedRequest(msgspec.Struct, rename="camel", kw_only=True):
    """One accepted request and what became of it."""

    attempt: int
    """1-based."""
    script_behavior: str
    """The entry of the script; `scripted` for a free-form reply."""
    behavior: str
    """What was played: the choice, where the entry was `random`."""
    path: str
    headers: dict[str, str]
    body: Any
    chunks_sent: int = 0
    """Pieces of the body that were sent."""
    outcome: Outcome | None = None
    """None while it is being answered."""


class MockModelServer:
    """A scripted chat-completions server on loopback."""

    def __init__(
        self,
        script: Sequence[Entry] = ("success",),
        *,
        repeat_last: bool = False,
        api_key: str | None = None,
        options: MockOptions | None = None,
        seed: int = 0,
        random_weights: Mapping[str, float] | None = None,
        sessions: Mapping[str, Sequence[Entry]] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        observe: Callable[[str, RecordedRequest], None] = lambda kind, record: None,
    ) -> None:
        """
        Args:
            repeat_last: play the last entry again for ever, else 500 once the script is used up.
            api_key: the bearer token to insist on.
            seed: of the choices of `random`.
            sessions: scripts of their own for requests that carry this session id in the session header.
            observe: called with `request` and `result`.
        """
        for entry in (*script, *(e for own in (sessions or {}).values() for e in own)):
            if isinstance(entry, str) and entry != "random" and entry not in BEHAVIOURS:
                raise ValueError(f"unknown behaviour {entry!r}; known: random, {', '.join(BEHAVIOURS)}")
        self.options = options or MockOptions()
        self.seed = seed
        self.requests: list[RecordedRequest] = []
        self.connections = 0
        """Connections accepted so far."""
        self._scripts = {"": tuple(script), **{k: tuple(v) for k, v in (sessions or {}).items()}}
        self._cursors: dict[str, int] = {}
        self._repeat_last = repeat_last
        self._api_key = api_key
        self._random = random.Random(seed)
        self._weights = dict(random_weights or RANDOM_WEIGHTS)
        self._host, self._port = host, port
        self._observe = observe
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        """What `DEEPSEEK_BASE_URL` is set to."""
        return f"http://{self._host}:{self._port}/v1"

    @property
    def port(self) -> int:
        return self._port

    async def __aenter__(self) -> "MockModelServer":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Bind and listen."""
        self._server = await asyncio.start_server(
            self._accept, self._host, self._port, limit=MAX_HEAD_BYTES, backlog=512
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close every connection and stop listening."""
        if self._server is not None:
            self._server.close()
            for task in tuple(self._connections):
                task.cancel()
            if self._connections:
                await asyncio.wait(tuple(self._connections))
            await self._server.wait_closed()
            self._server = None

    @contextlib.contextmanager
    def in_thread(self) -> "Iterator[MockModelServer]":
        """Serve from a thread with its own event loop, for tests of programs."""
        started = threading.Event()
        failure: list[BaseException] = []
        stop: list[Callable[[], object]] = []

        async def serve() -> None:
            end = asyncio.Event()
            loop = asyncio.get_running_loop()
            stop.append(lambda: loop.call_soon_threadsafe(end.set))
            async with self:
                started.set()
                await end.wait()

        def run() -> None:
            try:
                asyncio.run(serve())
            except BaseException as error:  # handed to the caller's thread, which raises it
                failure.append(error)
            finally:
                started.set()

        thread = threading.Thread(target=run, name="mock model server", daemon=True)
        thread.start()
        started.wait()
        if failure:
            raise failure[0]
        try:
            yield self
        finally:
            stop[0]()
            thread.join(10)

    # -- one connection ----------------------------------------------------------------------------

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.connections += 1
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                connection = _Connection(reader, writer)
                while await self._exchange(connection):
                    continue
        except asyncio.CancelledError:
            if self._server is not None and self._server.is_serving():
                raise
        finally:
            self._connections.discard(task)
            writer.close()

    async def _exchange(self, connection: "_Connection") -> bool:
        """Answer one request; False when the connection is over."""
        method, path, headers = await connection.head()
        body = await connection.body(headers)
        refusal = self._refusal(method, path, headers, body)
        if refusal is not None:
            return await connection.play(refusal, _Counter()) == "completed"
        plan, record = self._next(path, headers, json.loads(body))
        self.requests.append(record)
        self._observe("request", record)
        counter = _Counter()
        try:
            record.outcome = await connection.play(plan, counter)
        except ConnectionError:
            record.outcome = "client_closed"
        finally:
            record.chunks_sent = counter.sent
            record.outcome = record.outcome or "client_closed"
            self._observe("result", record)
        return record.outcome in ("completed", "server_error")

    def _refusal(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> Plan | None:
        if not path.partition("?")[0].endswith("/chat/completions"):
            return error_plan(404, f"no such path: {path}", "invalid_request_error")
        if method != "POST":
            return error_plan(405, f"no such method here: {method}", "invalid_request_error")
        if self._api_key is not None and headers.get("authorization") != f"Bearer {self._api_key}":
            return error_plan(401, "Incorrect API key provided", "authentication_error", "invalid_api_key")
        try:
            json.loads(body)
        except ValueError:
            return error_plan(400, "the body is not JSON", "invalid_request_error")
        return None

    def _next(self, path: str, headers: dict[str, str], body: Any) -> tuple[Plan, RecordedRequest]:
        session = headers.get(SESSION_HEADER, "")
        key = session if session in self._scripts else ""
        script, at = self._scripts[key], self._cursors.get(key, 0)
        self._cursors[key] = at + 1
        if at >= len(script) and self._repeat_last and script:
            at = len(script) - 1
        entry: Entry | None = script[at] if at < len(script) else None
        name = "scripted"
        if entry is None:
            name = "exhausted"
            plan = error_plan(
                500, "the script of the mock server is used up", "mock", "MOCK_SCRIPT_EXHAUSTED"
            )
        elif isinstance(entry, str):
            name = entry
            if entry == "random":
                name = self._random.choices(list(self._weights), list(self._weights.values()))[0]
            plan = BEHAVIOURS[name](self.options)
        else:
            plan = scripted(entry)
        headers_out = {"x-request-id": self.options.request_id, **plan.headers}
        record = RecordedRequest(
            attempt=len(self.requests) + 1,
            script_behavior=entry if isinstance(entry, str) else name,
            behavior=name,
            path=path,
            headers=headers,
            body=body,
        )
        return msgspec.structs.replace(plan, headers=headers_out), record


class _Counter:
    """How many pieces of the body went out."""

    sent = 0


class _Connection:
    """One HTTP/1.1 connection from the server's side, just as much of it as a model client uses."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def head(self) -> tuple[str, str, dict[str, str]]:
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = lines[0].split(" ", 2)
        pairs = (line.partition(":") for line in lines[1:] if line)
        return method, path, {name.strip().lower(): value.strip() for name, _, value in pairs}

    async def body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() != "chunked":
            return await self._reader.readexactly(int(headers.get("content-length") or 0))
        parts: list[bytes] = []
        while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readuntil(b"\r\n")
        return b"".join(parts)

    async def play(self, plan: Plan, counter: _Counter) -> Outcome:
        """Send an answer step by step. Raises ConnectionError when the client has gone."""
        if plan.status:
            self._writer.write(_head(plan))
            await self._writer.drain()
        for step in plan.steps:
            if isinstance(step, bytes):
                self._writer.write(step if plan.status >= 300 else b"%x\r\n%b\r\n" % (len(step), step))
                counter.sent += 1
                if counter.sent % 16 == 0:
                    await self._writer.drain()
            elif isinstance(step, Pause):
                await self._writer.drain()
                if await self._client_left(step.ms / 1000):
                    return "client_closed"
            elif isinstance(step, Stall):
                await self._client_left(None)
                return "stalled"
            else:
                await self._writer.drain()
                self._writer.transport.abort()
                return "reset"
        if plan.status < 300 and plan.status != 204:
            self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        return "completed" if plan.status < 500 else "server_error"

    async def _client_left(self, wait_s: float | None) -> bool:
        """Wait that long, or until the client closes its side, which is told by True."""
        try:
            async with asyncio.timeout(wait_s):
                while not self._reader.at_eof():
                    await self._reader.read(1)
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        return True


def _head(plan: Plan) -> bytes:
    lines = [f"HTTP/1.1 {plan.status} Mock", *(f"{name}: {value}" for name, value in plan.headers.items())]
    if plan.status >= 300:
        lines.append(f"content-length: {sum(len(step) for step in plan.steps if isinstance(step, bytes))}")
    elif plan.status != 204:
        lines.append("transfer-encoding: chunked")
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


__all__ = ["BEHAVIOURS", "MockModelServer", "MockOptions", "RecordedRequest", "Reset"]

if __name__ == "__main__":
    from dsh.testing.mock_command import main

    sys.exit(main())
