"""The wire formats as the contract suite sees them: a shipped row, its route, and the dialect of its server.

A new wire joins by a line in `WIRES`. What a test says holds for every one; where wires differ by nature, the
difference is a member of `Wire`.
"""

import importlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import pytest

from dsh.capabilities.http import HTTP, HttpClient
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.composition.environment import Environment
from dsh.kernel import CancelToken, Context
from dsh.llm.grammar import check_stream
from dsh.llm.registry import LLM, LLM_STREAM, LlmRegistry
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.llm.stream import close_stream
from dsh.session.assembler import BlockAssembler
from dsh.session.chunk import Chunk
from dsh.session.message import Message, assistant_message, user_message
from dsh.testing.mock_server import MockModelServer
from dsh.testing.mock_server.dialect.anthropic import ANTHROPIC
from dsh.testing.mock_server.dialect.base import Dialect, refused
from dsh.testing.mock_server.dialect.chat import DEEPSEEK, OPENAI
from dsh.testing.mock_server.part import Fault, FaultKind, Part
from dsh.testing.mock_server.plan import MockOptions, Plan
from dsh.testing.mock_server.server import ChatSpelling
from tests.contract.wire.memory_http import MemoryHttp, Sent

KEY = "mock-secret-key"
MEMORY = "http://memory.invalid/v1"
Test = TypeVar("Test", bound=Callable[..., Any])


class Wire(NamedTuple):
    """One wire format behind one shipped row."""

    name: str
    row: str
    """Module of `dsh.plugins`."""
    route: str
    key_variable: str
    dialect: Dialect
    is_nested: bool = True
    """The row's config holds routes, `providers: {route: {…}}`; else it is that of the one route."""
    signs_reasoning: bool = False
    """Reasoning goes back with the provider's signature, and only to whom it came from."""
    tells_tool_errors: bool = False
    """A failed tool call is marked on the wire."""
    in_band_status: bool = False
    """A fault within a stream can say which it is by a type of its own."""

    def config(self, base_url: str, **changes: Any) -> dict[str, Any]:
        """The row's config for an endpoint; `changes` are options that every route has."""
        route = {"baseURL": base_url, "apiKeyEnv": self.key_variable, **changes}
        return {"providers": {self.route: route}} if self.is_nested else route

    def plan(self, parts: Iterable[Part]) -> Plan:
        """The reply as this wire's server sends it."""
        return Plan(steps=tuple(self.dialect.steps(parts)))

    def error(self, kind: FaultKind, message: str = "", headers: Mapping[str, str] | None = None) -> Plan:
        """The HTTP error as this wire's server words it; `headers` in place of what it says of a wait."""
        plan = refused(self.dialect, Fault(kind, message), MockOptions())
        if headers is None:
            return plan
        kept = {name: value for name, value in plan.headers.items() if not name.startswith("retry-after")}
        return Plan(status=plan.status, headers={**kept, **headers}, steps=plan.steps)

    async def mount(self, ctx: Context, base_url: str, **changes: Any) -> None:
        """Mount the row."""
        await ctx.plugin(importlib.import_module(f"dsh.plugins.{self.row}"), self.config(base_url, **changes))


DEEPSEEK_WIRE = Wire(
    "deepseek", "llm_deepseek", "deepseek-official", "DEEPSEEK_API_KEY", DEEPSEEK, is_nested=False
)
OPENAI_WIRE = Wire("openai", "llm_openai", "openai-compatible", "OPENAI_API_KEY", OPENAI)
ANTHROPIC_WIRE = Wire(
    "anthropic", "llm_anthropic", "anthropic", "ANTHROPIC_API_KEY", ANTHROPIC,
    signs_reasoning=True, tells_tool_errors=True,
)  # fmt: skip
WIRES: tuple[Wire, ...] = (DEEPSEEK_WIRE, OPENAI_WIRE, ANTHROPIC_WIRE)


def over_wires(test: Test) -> Test:
    """Decorator: the test once for every wire, as its argument `wire`."""
    made: Test = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)(test)
    return made


class Reply:
    """What one request came to."""

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        self.chunks = list(chunks)
        made = BlockAssembler()
        for chunk in self.chunks:
            made.push(chunk)
        self.finish: Any = made.finish
        self.usage = made.usage
        self.replay_state = made.replay_state
        self.blocks: list[Any] = [dict(block) for block in made.blocks()]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reply) and self._facts() == other._facts()

    def __repr__(self) -> str:
        return f"Reply{self._facts()!r}"

    def _facts(self) -> tuple[Any, ...]:
        return self.blocks, self.finish, self.usage, self.replay_state

    def logged(self, wire: Wire) -> Message:
        """The message that the loop logs of it."""
        return assistant_message(self.blocks, provider=wire.route, model="m", replay_state=self.replay_state)

    @property
    def kind(self) -> str:
        return str(self.finish["kind"])

    @property
    def text(self) -> str:
        return self._joined("text")

    @property
    def reasoning(self) -> str:
        return self._joined("reasoning")

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        """`(id, name, arguments)` of each tool call."""
        return [(b["id"], b["name"], b["arguments"]) for b in self.blocks if b["type"] == "tool-call"]

    @property
    def code(self) -> str:
        """The code it failed with; empty where it did not."""
        return str(self.failure.get("code", ""))

    @property
    def failure(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.finish.get("failure", {})
        return found

    def _joined(self, kind: str) -> str:
        return "".join(block["text"] for block in self.blocks if block["type"] == kind)


class Line:
    """A running composition with one or more wires."""

    def __init__(self, ctx: Context, wire: Wire) -> None:
        self.ctx, self.wire = ctx, wire

    @property
    def llm(self) -> LlmRegistry:
        return self.ctx.use(LLM)

    async def stream(
        self, *, wire: Wire | None = None, effort: str | None = None, **fields: Any
    ) -> AsyncIterator[Chunk]:
        """The chunks of one request."""
        config = LlmCallConfig((wire or self.wire).route, "m", reasoning_effort=effort)
        signal: CancelToken | None = fields.get("signal")
        call = await self.llm.prepare_call(config, signal)
        fields.setdefault("messages", (user_message("hello"),))
        chunks = call.stream(LlmRequest(config=call.config, **fields))
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await close_stream(chunks)

    async def ask(self, **fields: Any) -> Reply:
        return Reply([chunk async for chunk in self.stream(**fields)])


class MemoryLine(Line):
    """The same on a server in memory."""

    http: MemoryHttp

    @property
    def sent(self) -> list[Sent]:
        return self.http.sent


@asynccontextmanager
async def composed(http: HttpClient, keys: Mapping[str, str] | None = None) -> AsyncIterator[Context]:
    """A context with the registry, the grammar of every stream, an HTTP client and the keys of all routes."""
    ctx = Context()
    values = {wire.key_variable: KEY for wire in WIRES} if keys is None else dict(keys)
    try:
        ctx.provide(LAUNCH_ENVIRONMENT, Environment(values, []))
        ctx.effect(lambda: http.aclose, "http client")
        ctx.provide(HTTP, http)
        await ctx.plugin(LlmRegistry, name="llm")
        ctx.on(LLM_STREAM, check_stream, prepend=True, global_=True)
        yield ctx
    finally:
        await ctx.dispose()


@asynccontextmanager
async def in_memory(wire: Wire, *plans: Plan, **changes: Any) -> AsyncIterator[MemoryLine]:
    """The row against these answers, one a request."""
    http = MemoryHttp(plans)
    async with composed(http) as ctx:
        await wire.mount(ctx, MEMORY, **changes)
        line = MemoryLine(ctx, wire)
        line.http = http
        yield line
        assert http.open_streams == 0, "a stream was left open"


@asynccontextmanager
async def served(wire: Wire, *script: Any, **options: Any) -> AsyncIterator[tuple[Line, MockModelServer]]:
    """The row against a real server. Options of the route are given as `row`, the others are the server's."""
    row = options.pop("row", {})
    async with MockModelServer(script, dialect=spelling(wire), **options) as server:
        async with composed(HttpClient()) as ctx:
            await wire.mount(ctx, url_of(wire, server), **row)
            yield Line(ctx, wire), server


def url_of(wire: Wire, server: MockModelServer) -> str:
    """The base URL of a wire's routes on a mock server."""
    return server.anthropic_url if wire is ANTHROPIC_WIRE else server.base_url


def spelling(wire: Wire) -> ChatSpelling:
    """How the mock server is to spell chat completions for a wire."""
    return "openai" if wire is OPENAI_WIRE else "deepseek"
