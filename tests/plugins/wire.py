"""A composition with the `llm` and `llm-deepseek` rows and short ways to ask it something."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.composition.environment import Environment
from dsh.kernel import CancelToken, Context
from dsh.llm.registry import LLM, LlmRegistry
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.plugins import llm, llm_deepseek
from dsh.session.chunk import Chunk, Finish, TextDelta
from dsh.session.message import Message, user_message
from dsh.testing.mock_server import MockModelServer

KEY = "mock-secret-key"


class Wire:
    """A running composition with a provider row, and short ways to ask it something."""

    def __init__(
        self, ctx: Context, route: str = "deepseek-official", model: str = "deepseek-v4-flash"
    ) -> None:
        self.ctx = ctx
        self._route = route
        self._model = model

    @property
    def llm(self) -> LlmRegistry:
        return self.ctx.use(LLM)

    async def stream(
        self,
        *messages: Message,
        route: str | None = None,
        model: str | None = None,
        config: Mapping[str, Any] | None = None,
        signal: CancelToken | None = None,
        **fields: Any,
    ) -> AsyncIterator[Chunk]:
        """The chunks of one request."""
        chosen = LlmCallConfig(
            route or self._route, self._model if model is None else model, **(config or {})
        )
        call = await self.llm.prepare_call(chosen)
        said = messages or (user_message("hello"),)
        chunks = call.stream(LlmRequest(config=call.config, messages=said, signal=signal, **fields))
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await chunks.aclose()  # type: ignore[attr-defined]

    async def ask(self, *messages: Message, **fields: Any) -> list[Chunk]:
        return [chunk async for chunk in self.stream(*messages, **fields)]


@asynccontextmanager
async def composed(row: Any, config: Mapping[str, Any], env: Mapping[str, str]) -> AsyncIterator[Context]:
    """The rows `llm` and `row`, with these variables of the process."""
    ctx = Context()
    try:
        ctx.provide(LAUNCH_ENVIRONMENT, Environment(dict(env), []))
        await ctx.plugin(llm, {})
        await ctx.plugin(row, config)
        yield ctx
    finally:
        await ctx.dispose()


@asynccontextmanager
async def wire(
    base_url: str | None, env: Mapping[str, str] | None = None, **config: Any
) -> AsyncIterator[Wire]:
    """The rows against an endpoint; `config` is that of the row `llm-deepseek`."""
    values = {"DEEPSEEK_API_KEY": KEY, **({"DEEPSEEK_BASE_URL": base_url} if base_url else {}), **(env or {})}
    async with composed(llm_deepseek, config, values) as ctx:
        yield Wire(ctx)


@asynccontextmanager
async def against(*script: Any, **options: Any) -> AsyncIterator[tuple[Wire, MockModelServer]]:
    """The rows against a mock server. Options of the row are given as `row`, the others are the server's."""
    row = options.pop("row", {})
    async with MockModelServer(script, **options) as server, wire(server.base_url, **row) as running:
        yield running, server


def text_of(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


def reason_of(chunks: list[Chunk]) -> Mapping[str, Any]:
    last = chunks[-1]
    assert isinstance(last, Finish)
    return last.reason


def failure_of(chunks: list[Chunk]) -> Any:
    reason = reason_of(chunks)
    assert reason["kind"] == "error", reason
    return reason["failure"]
