"""The mock model server: what it accepts, what consumes its script, what it records."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from dsh.testing.mock_server.connection import Connection, Counter
from dsh.testing.mock_server.dialect.anthropic import ANTHROPIC
from dsh.testing.mock_server.dialect.base import Dialect, failed
from dsh.testing.mock_server.dialect.chat import DEEPSEEK, OPENAI
from dsh.testing.mock_server.dialect.sse import compact
from dsh.testing.mock_server.plan import JSON_HEADERS, MockOptions, Outcome, Plan
from dsh.testing.mock_server.script import Entry, Script
from dsh.testing.mock_server.strict.anthropic import FIELDS, check_anthropic
from dsh.testing.mock_server.strict.chat import REFUSABLE, check_chat
from dsh.testing.mock_server.strict.look import RequestProblem
from dsh.testing.mock_server.strict.rules import Issued, Rules

ChatSpelling: TypeAlias = Literal["deepseek", "openai"]
MAX_HEAD_BYTES = 1024 * 1024
MAX_PORT = 65_535
SESSION_HEADER = "x-deepseek-harness-session-id"


class RecordedRequest(msgspec.Struct, rename="camel", kw_only=True):
    """One accepted request and what became of it."""

    attempt: int
    """1-based."""
    script_behavior: str
    """The entry of the script; `scripted` for a free-form reply, made or given."""
    behavior: str
    """What was played: the choice, where the entry was `random`."""
    dialect: str
    """`deepseek`, `openai` or `anthropic`."""
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


class RefusedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request that was not accepted: a wrong path, method, key or body."""

    status: int
    reason: str
    path: str
    raw_body: bytes


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
        rules: Rules | None = None,
        models: Sequence[str] = ("mock",),
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
            rules: how strict it is about requests.
            models: what `GET …/models` lists.
            seed: of the choices of `random`, 0 to 2^32-1.
            sessions: scripts of their own for requests that carry this session id in the session header.
            observe: called with `request` and `result`.

        Raises:
            ValueError: the script, the weights, the rules, the host, the port or the seed cannot be.
        """
        if not host:
            raise ValueError("a host is a name or an address, found ''")
        if not 0 <= port <= MAX_PORT:
            raise ValueError(f"a port is 0 to {MAX_PORT}, found {port}")
        self.options = options or MockOptions()
        self.rules = rules or Rules()
        if unknown := set(self.rules.refuses).difference(REFUSABLE, FIELDS):
            raise ValueError(f"no request has what is to be refused: {', '.join(sorted(unknown))}")
        self.seed = seed
        self.requests: list[RecordedRequest] = []
        self.refused: list[RefusedRequest] = []
        self.connections = 0
        """Connections accepted so far."""
        self.listings = 0
        """Requests for the list of models that were answered."""
        self._script = Script(
            script, sessions or {}, repeat_last=repeat_last, seed=seed, weights=random_weights
        )
        self._chat: Dialect = OPENAI if dialect == "openai" else DEEPSEEK
        self._issued = Issued()
        self._models = tuple(models)
        self._api_key = api_key
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
        """The base URL of the Messages API; its clients add `/v1/messages`."""
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

    async def _exchange(self, connection: Connection) -> bool:
        """Answer one request; False when the connection is over."""
        try:
            method, target, headers, body = await connection.request()
        except ValueError:
            await self._refuse(connection, self._chat, _Refusal(400, "this is no HTTP request"), "", b"")
            return False
        path = target.partition("?")[0]
        dialect = self._dialect(path, headers)
        if method == "GET" and path.endswith("/models") and self._is_let_in(dialect, headers):
            self.listings += 1
            listing = Plan(headers=JSON_HEADERS, steps=(compact(dialect.models(self._models)),))
            return await connection.play(listing, Counter()) == "completed"
        try:
            request = self._accepted(dialect, method, path, headers, body)
        except _Refusal as refusal:
            return await self._refuse(connection, dialect, refusal, target, body)
        plan, record = self._next(dialect, target, headers, body, request)
        return await self._play(connection, plan, record)

    async def _refuse(
        self, connection: Connection, dialect: Dialect, refusal: "_Refusal", target: str, body: bytes
    ) -> bool:
        record = RefusedRequest(status=refusal.status, reason=str(refusal), path=target, raw_body=body)
        self.refused.append(record)
        answer = failed(dialect, refusal.status, str(refusal), refusal.code)
        return await connection.play(answer, Counter()) == "completed"

    async def _play(self, connection: Connection, plan: Plan, record: RecordedRequest) -> bool:
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

    def _dialect(self, path: str, headers: Mapping[str, str]) -> Dialect:
        of_anthropic = path.endswith(ANTHROPIC.path) or "anthropic-version" in headers
        return ANTHROPIC if of_anthropic else self._chat

    def _is_let_in(self, dialect: Dialect, headers: Mapping[str, str]) -> bool:
        return self._api_key is None or dialect.key(headers) == self._api_key

    def _accepted(
        self, dialect: Dialect, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> dict[str, Any]:
        """The decoded body.

        Raises:
            _Refusal: the request is wrong.
        """
        listing = path.endswith("/models")
        if not listing and not path.endswith(dialect.path):
            raise _Refusal(404, f"no such path: {path}")
        if method != ("GET" if listing else "POST"):
            raise _Refusal(405, f"no such method here: {method}")
        if not self._is_let_in(dialect, headers):
            raise _Refusal(401, "Incorrect API key provided", "invalid_api_key")
        try:
            request = json.loads(body)
        except (ValueError, RecursionError):
            raise _Refusal(400, "the body is not JSON") from None
        if not isinstance(request, dict):
            raise _Refusal(400, "the body is not a JSON object")
        if self.rules.is_strict:
            try:
                self._check(dialect, headers, request)
            except RequestProblem as problem:
                raise _Refusal(400, str(problem)) from None
        return request

    def _check(self, dialect: Dialect, headers: Mapping[str, str], request: object) -> None:
        if dialect is ANTHROPIC:
            check_anthropic(request, headers, self.rules, self._issued)
        else:
            check_chat(request, dialect.name, self.rules, self._issued)

    def _next(
        self, dialect: Dialect, path: str, headers: dict[str, str], body: bytes, request: dict[str, Any]
    ) -> tuple[Plan, RecordedRequest]:
        entry = self._script.next(headers.get(SESSION_HEADER, ""))
        name, plan = self._script.plan(entry, dialect.asked(request), self.options, request)
        if plan.calls:
            self._issued.remember(str(request.get("model", "")), plan.calls)
        record = RecordedRequest(
            attempt=len(self.requests) + 1,
            script_behavior=entry if isinstance(entry, str) else name,
            behavior=name,
            dialect=dialect.name,
            path=path,
            headers=headers,
            raw_body=body,
        )
        named = {**dialect.request_id(self.options.request_id), **plan.headers}
        return msgspec.structs.replace(plan, headers=named), record


class _Refusal(Exception):
    """Why a request consumes nothing."""

    def __init__(self, status: int, reason: str, code: str = "") -> None:
        super().__init__(reason)
        self.status, self.code = status, code
