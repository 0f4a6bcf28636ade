"""A composition with the `llm` and `llm-openai` rows and short ways to ask it something."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dsh.llm.failure import LlmError
from dsh.plugins import llm_openai
from dsh.testing.mock_server import MockModelServer, MockOptions
from tests.plugins.wire import Wire, composed

ROUTE = "openai-compatible"
KEY = "sk-mock-secret-key"
QUICK = MockOptions(chunk_delay_ms=1)


@asynccontextmanager
async def routes(providers: Mapping[str, Any], env: Mapping[str, str] | None = None) -> AsyncIterator[Wire]:
    """The rows `llm` and `llm-openai` with these routes and variables of the process."""
    values = {"OPENAI_API_KEY": KEY, **(env or {})}
    async with composed(llm_openai, {"providers": providers}, values) as ctx:
        yield Wire(ctx, ROUTE, "gpt-x")


def usual(base_url: str | None = None, **more: Any) -> dict[str, Any]:
    """The config of one route."""
    found = {"apiKeyEnv": "OPENAI_API_KEY", "baseURLEnv": "OPENAI_BASE_URL", **more}
    return found if base_url is None else {"baseURL": base_url, **found}


@asynccontextmanager
async def against(
    *script: Any, route: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[Wire, MockModelServer]]:
    """One route against a server that speaks as OpenAI does."""
    options.setdefault("options", QUICK)
    async with (
        MockModelServer(script or ("success",), dialect="openai", **options) as server,
        routes({ROUTE: usual(server.base_url, **(route or {}))}) as running,
    ):
        yield running, server


async def refused(running: Wire, **asked: Any) -> LlmError:
    """Why a call cannot even be prepared."""
    with pytest.raises(LlmError) as caught:
        await running.ask(**asked)
    return caught.value
