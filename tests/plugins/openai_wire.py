"""A composition with the `llm` and `llm-openai` rows and short ways to ask it something."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.composition.environment import Environment
from dsh.kernel import CancelToken, Context
from dsh.llm.failure import LlmError
from dsh.llm.registry import LLM, LlmRegistry
from dsh.llm.request import LlmCallConfig, LlmRequest
from dsh.plugins import llm, llm_openai
from dsh.session.chunk import Chunk
from dsh.session.message import Message, user_message
from dsh.testing.mock_server import MockModelServer, MockOptions

ROUTE = "openai-compatible"
KEY = "sk-mock-secret-key"
QUICK = MockOptions(chunk_delay_ms=1)


class Routes:
    """The registry of a running composition."""

    def __init__(self, ctx: Context) -> None:
        self.ctx = ctx

    @property
    def llm(self) -> LlmRegistry:
        return self.ctx.use(LLM)

    async def ask(
        self,
        *messages: Message,
        route: str = ROUTE,
        model: str = "gpt-x",
        config: Mapping[str, Any] | None = None,
        signal: CancelToken | None = None,
        **fields: Any,
    ) -> list[Chunk]:
        """The chunks of one request."""
        call = await self.llm.prepare_call(LlmCallConfig(route, model, **(config or {})), signal)
        asked = LlmRequest(
            config=call.config, messages=messages or (user_message("hello"),), signal=signal, **fields
        )
        return [chunk async for chunk in call.stream(asked)]


@asynccontextmanager
async def routes(providers: Mapping[str, Any], env: Mapping[str, str] | None = None) -> AsyncIterator[Routes]:
    """The rows `llm` and `llm-openai` with these routes and variables of the process."""
    ctx = Context()
    try:
        ctx.provide(LAUNCH_ENVIRONMENT, Environment({"OPENAI_API_KEY": KEY, **(env or {})}, []))
        await ctx.plugin(llm, {})
        await ctx.plugin(llm_openai, {"providers": providers})
        yield Routes(ctx)
    finally:
        await ctx.dispose()


def usual(base_url: str | None = None, **more: Any) -> dict[str, Any]:
    """The config of one route."""
    found = {"apiKeyEnv": "OPENAI_API_KEY", "baseURLEnv": "OPENAI_BASE_URL", **more}
    return found if base_url is None else {"baseURL": base_url, **found}


@asynccontextmanager
async def against(
    *script: Any, route: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[Routes, MockModelServer]]:
    """One route against a server that speaks as OpenAI does."""
    options.setdefault("options", QUICK)
    async with (
        MockModelServer(script or ("success",), dialect="openai", **options) as server,
        routes({ROUTE: usual(server.base_url, **(route or {}))}) as running,
    ):
        yield running, server


async def refused(running: Routes, **asked: Any) -> LlmError:
    """Why a call cannot even be prepared."""
    with pytest.raises(LlmError) as caught:
        await running.ask(**asked)
    return caught.value
