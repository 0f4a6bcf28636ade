"""The recovery matrix: every fault of the mock server, both modes, several budgets, through the real loop."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dsh.agent.contract import AgentOptions, CreateAgent
from dsh.agent.registry import AGENTS
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.composition.environment import Environment
from dsh.kernel import Context
from dsh.plugins import agent, agent_loop, llm, llm_deepseek, llm_retry, session, system_prompt, tools
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.testing.mock_server import MockModelServer, MockOptions
from tests.agent.kit import data_of, ends, settled, short
from tests.aio import aio

QUICK = {"backoff": {"initialDelayMs": 1, "maxDelayMs": 2}}
OPTIONS = MockOptions(disconnect_delay_ms=1, chunk_delay_ms=1, retry_after_ms=0)
RETRIED = {
    "connection_reset": "TRANSPORT",
    "stream_disconnect": "TRANSPORT",
    "partial_disconnect": "TRANSPORT",
    "empty": "EMPTY_RESPONSE",
    "empty_body": "STREAM_CLOSED",
    "stream_eof": "STREAM_CLOSED",
    "partial_eof": "STREAM_CLOSED",
    "stall": "TIMEOUT",
    "malformed_json": "MALFORMED_RESPONSE",
    "malformed_event": "MALFORMED_RESPONSE",
    "html_page": "MALFORMED_RESPONSE",
    "rate_limit": "RATE_LIMIT",
    "server_error": "SERVER",
    "service_unavailable": "SERVER",
    "request_timeout": "HTTP_408",
    "too_early": "HTTP_425",
    "insufficient_resource": "INSUFFICIENT_SYSTEM_RESOURCE",
    "in_band_error": "RATE_LIMIT",
}
FINAL = {
    "auth_error": "AUTH",
    "invalid_request": "INVALID_REQUEST",
    "context_overflow": "CONTEXT_WINDOW_EXCEEDED",
    "quota_exceeded": "QUOTA",
    "content_filter": "CONTENT_FILTER",
    "redirect": "HTTP_307",
}


@asynccontextmanager
async def turn(
    server: MockModelServer, retry: Mapping[str, Any], idle_ms: int = 20_000
) -> AsyncIterator[Session]:
    """The log of one turn against the server."""
    ctx = Context()
    env = {"DEEPSEEK_API_KEY": "mock-key", "DEEPSEEK_BASE_URL": server.base_url}
    row = {"retryPolicy": {**QUICK, **retry}, "streamIdleTimeoutMs": idle_ms}
    try:
        ctx.provide(LAUNCH_ENVIRONMENT, Environment(env, []))
        rows: list[tuple[Any, dict[str, Any]]] = [
            (module, {}) for module in (session, agent, tools, llm, llm_retry)
        ]
        rows += [(llm_deepseek, row), (system_prompt, {"includeHarnessIdentity": False}), (agent_loop, {})]
        for fiber in [ctx.plugin(module, config) for module, config in rows]:
            await settled(fiber)
        options = AgentOptions(provider="deepseek-official", model="m")
        handle = await ctx.use(AGENTS).create(CreateAgent(cwd="/ws", options=options))
        handle.agent.followup(user_message("go"))
        await handle.agent.when_idle()
        yield handle.agent.session
    finally:
        await ctx.dispose()


@pytest.mark.parametrize("budget", [0, 1, 5])
@pytest.mark.parametrize("behaviour", RETRIED)
@aio
async def test_a_passing_fault_is_tried_again_up_to_the_budget(behaviour: str, budget: int) -> None:
    async with (
        MockModelServer([behaviour], repeat_last=True, options=OPTIONS) as server,
        turn(server, {"maxRetries": budget}, 200 if behaviour == "stall" else 20_000) as log,
    ):
        assert len(server.requests) == budget + 1
        assert [row["retry"] for row in data_of(log, "llm/retry")] == list(range(1, budget + 1))
        assert [row["retry"] for row in data_of(log, "llm/retry-started")] == list(range(1, budget + 1))
        assert {row["failure"]["code"] for row in data_of(log, "llm/retry")} <= {RETRIED[behaviour]}
        (end,) = ends(log)
        assert (end["kind"], end["error"]["code"]) == ("error", RETRIED[behaviour])


@pytest.mark.parametrize("behaviour", FINAL)
@aio
async def test_a_final_fault_is_not_tried_again(behaviour: str) -> None:
    async with (
        MockModelServer([behaviour], repeat_last=True, options=OPTIONS) as server,
        turn(server, {}) as log,
    ):
        assert len(server.requests) == 1
        assert data_of(log, "llm/retry") == []
        assert ends(log)[0]["error"]["code"] == FINAL[behaviour]


@pytest.mark.parametrize("behaviour", [*RETRIED, *FINAL])
@aio
async def test_mode_always_goes_on_until_it_works_and_sends_nothing_of_what_failed(behaviour: str) -> None:
    async with (
        MockModelServer([behaviour] * 2 + ["success"], options=OPTIONS) as server,
        turn(server, {"mode": "always"}, 1000 if behaviour == "stall" else 20_000) as log,
    ):
        assert ends(log) == [{"kind": "completed"}]
        first, *others = (request.body for request in server.requests)
        assert others == [first, first]
        (message,) = data_of(log, "assistant/message")
        assert message["message"]["content"] == ({"type": "text", "text": OPTIONS.success_text},)


@aio
async def test_a_retry_stays_in_its_step_and_only_its_own_chunks_are_cited() -> None:
    async with (
        MockModelServer(["partial_eof", "success"], options=OPTIONS) as server,
        turn(server, {}) as log,
    ):
        assert short(log).endswith(
            "request/context request/digest chunks llm/retry llm/retry-started request/digest chunks "
            "request/usage assistant/message step/end turn/end"
        )
        retry = next(event.seq for event in log.events() if event.type == "llm/retry")
        reply = next(event for event in log.events() if event.type == "assistant/message")
        assert reply.sources is not None
        assert min(reply.sources) > retry
        assert len(server.requests) == 2


@aio
async def test_defaults_of_the_adapter_are_logged_and_marked() -> None:
    async with MockModelServer(options=OPTIONS) as server, turn(server, {}) as log:
        (header,) = data_of(log, "request/header")

        assert header["header"]["config"] == {
            "provider": "deepseek-official",
            "model": "m",
            "reasoningEffort": "high",
            "maxTokens": 256_000,
        }
        assert header["header"]["adapterDefaults"] == {"reasoningEffort": True, "maxTokens": True}
        (context,) = data_of(log, "request/context")
        assert context["contextWindow"] == 1_000_000
