"""The mock model server: its script, what consumes it, what it records."""

import asyncio
import contextlib
import json
import math
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from dsh.testing.mock_server.behaviour import BEHAVIOURS, RANDOM_WEIGHTS, behaviours
from dsh.testing.mock_server.connection import Connection, Counter
from dsh.testing.mock_server.dialect.anthropic import ANTHROPIC
from dsh.testing.mock_server.dialect.base import Dialect
from dsh.testing.mock_server.dialect.chat import DEEPSEEK, OPENAI
from dsh.testing.mock_server.plan import MockOptions, Outcome, Plan
from dsh.testing.mock_server.reply import scripted

ChatSpelling: TypeAlias = Literal["deepseek", "openai"]
Entry: TypeAlias = str | Mapping[str, Any] | Callable[[Any], Mapping[str, Any]]
"""A behaviour's name, a free-form reply, or what makes one of a request's decoded body."""
MAX_HEAD_BYTES = 1024 * 1024
MAX_SEED = 2**32 - 1
MAX_PORT = 65_535
ALL = tuple(dict.fromkeys((*BEHAVIOURS, *behaviours("anthropic"))))
"""Every behaviour of any dialect."""
SESSION_HEADER = "x-deepseek-harness-session-id"


class RecordedRequest(msgspec.Struct, rename="camel", kw_only=True):
    """One accepted request and what became of it."""

    attempt: int
    """1-based."""
    script_behavior: str
    """The entry of the script; `scripted` for a free-form reply, made or given."""
    behavior: str
    """What was played: the choice, where the entry was `random`."""
    path: str
    headers: dict[str, str]
    raw_body: bytes
    chunks_sent: int = 0
    """Pieces of the body that were sent."""
    outcome: Outcome | None = None
    """None while it is being answered."""

    @property
    def body(self) -> Any:
        """The body, decoded anew: thousands of long histories would otherwise fill the memory."""
        return json.loads(self.raw_body)


def _check_entry(entry: object) -> None:
    if isinstance(entry, Mapping):
        scripted(entry)
    elif callable(entry):
        return
    elif entry != "random" and entry not in ALL:
        raise ValueError(f"unknown behaviour {entry!r}; known: random, {', '.join(ALL)}")


def _check_weights(weights: Mapping[str, object]) -> None:
    if unknown := set(weights) - set(ALL):
        raise ValueError(f"weights for unknown behaviours {sorted(unknown)}; known: {', '.join(ALL)}")
    sound = all(isinstance(weight, int | float) and 0 <= weight < math.inf for weight in weights.values())
    if not sound or not any(weights.values()):
        raise ValueError(f"random weights are numbers from 0, one of them above it; found {weights}")


class MockModelServer:
    """A scripted model server on loopback: chat completions and Messages, told apart by the path."""

    def __init__(
        self,
        script: Sequence[Entry] = ("success",),
        *,
        repeat_last: bool = False,
        api_key: str | None = None,
        options: MockOptions | None = None,
        dialect: ChatSpelling = "deepseek",
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
            api_key: the key to insist on, in the header of the request's dialect.
            dialect: how chat completions are spelled; requests to `…/messages` are always Anthropic's.
            seed: of the choices of `random`, 0 to 2^32-1.
            sessions: scripts of their own for requests that carry this session id in the session header.
            observe: called with `request` and `result`.

        Raises:
            ValueError: the script, the weights, the port or the seed cannot be.
        """
        self.options = options or MockOptions()
        weights = dict(RANDOM_WEIGHTS if random_weights is None else random_weights)
        for entry in (*script, *(e for own in (sessions or {}).values() for e in own)):
            _check_entry(entry)
        _check_weights(weights)
        if not 0 <= port <= MAX_PORT:
            raise ValueError(f"a port is 0 to {MAX_PORT}, found {port}")
        if not 0 <= seed <= MAX_SEED:
            raise ValueError(f"the seed of random is 0 to {MAX_SEED}, found {seed}")
        self.seed = seed
        self.requests: list[RecordedRequest] = []
        self.connections = 0
        """Connections accepted so far."""
        self._chat: Dialect = OPENAI if dialect == "openai" else DEEPSEEK
        self._scripts = {"": tuple(script), **{k: tuple(v) for k, v in (sessions or {}).items()}}
        self._cursors: dict[str, int] = {}
        self._repeat_last = repeat_last
        self._api_key = api_key
        self._random = random.Random(seed)
        self._weights = weights
        self._host, self._port = host, port
        self._observe = observe
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        """What `DEEPSEEK_BASE_URL` or `OPENAI_BASE_URL` is set to."""
        return f"{self.anthropic_url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The base URL of the Messages API, which its clients follow by `/v1/messages`."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

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
                connection = Connection(reader, writer)
                while await self._exchange(connection):
                    continue
        except asyncio.CancelledError:
            if self._server is not None and self._server.is_serving():
                raise
        finally:
            self._connections.discard(task)
            writer.close()

    async def _exchange(self, connection: "Connection") -> bool:
        """Answer one request; False when the connection is over."""
        method, path, headers = await connection.head()
        body = await connection.body(headers)
        dialect = self._dialect(path)
        refusal = self._refusal(dialect, method, path, headers, body)
        if refusal is not None:
            return await connection.play(refusal, Counter()) == "completed"
        plan, record = self._next(dialect, path, headers, body)
        self.requests.append(record)
        self._observe("request", record)
        counter = Counter()
        try:
            record.outcome = await connection.play(plan, counter)
        except ConnectionError:
            record.outcome = "client_closed"
        finally:
            record.chunks_sent = counter.sent
            record.outcome = record.outcome or "client_closed"
            self._observe("result", record)
        return record.outcome in ("completed", "server_error")

    def _dialect(self, path: str) -> Dialect:
        return ANTHROPIC if path.partition("?")[0].endswith(ANTHROPIC.path) else self._chat

    def _refusal(
        self, dialect: Dialect, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> Plan | None:
        if not path.partition("?")[0].endswith(dialect.path):
            return dialect.failure(404, f"no such path: {path}")
        if method != "POST":
            return dialect.failure(405, f"no such method here: {method}")
        if self._api_key is not None and dialect.key(headers) != self._api_key:
            return dialect.failure(401, "Incorrect API key provided", "invalid_api_key")
        try:
            json.loads(body)
        except ValueError:
            return dialect.failure(400, "the body is not JSON")
        return None

    def _next(
        self, dialect: Dialect, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[Plan, RecordedRequest]:
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
            plan = dialect.failure(500, "the script of the mock server is used up", "MOCK_SCRIPT_EXHAUSTED")
        elif isinstance(entry, str):
            name = entry
            if entry == "random":
                name = self._random.choices(list(self._weights), list(self._weights.values()))[0]
            plan = self._play(dialect, name)
        else:
            plan = scripted(entry(json.loads(body)) if callable(entry) else entry, dialect)
        headers_out = {**dialect.request_id(self.options.request_id), **plan.headers}
        record = RecordedRequest(
            attempt=len(self.requests) + 1,
            script_behavior=entry if isinstance(entry, str) else name,
            behavior=name,
            path=path,
            headers=headers,
            raw_body=body,
        )
        return msgspec.structs.replace(plan, headers=headers_out), record

    def _play(self, dialect: Dialect, name: str) -> Plan:
        behaviour = behaviours(dialect.name).get(name)
        if behaviour is None:
            return dialect.failure(
                500, f"the {dialect.name} dialect has no behaviour {name}", "MOCK_NO_BEHAVIOUR"
            )
        return behaviour(dialect, self.options)
