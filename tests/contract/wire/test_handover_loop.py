"""The loop on a route that changes between any two requests: retries, results, cancelled and kept replies."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
import pytest

from dsh.agent.contract import AGENT_REQUEST, Agent, AgentOptions, CreateAgent, RequestSeed
from dsh.agent.registry import AGENTS
from dsh.capabilities.http import HttpClient
from dsh.llm.request import LlmCallConfig
from dsh.plugins import agent_loop
from dsh.session.message import user_message
from dsh.session.verify.log import verify
from dsh.testing.mock_server import MockModelServer, MockOptions
from dsh.tools.definition import TEXT_OUTPUT
from dsh.tools.execution import ToolExecution
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool
from tests.agent.kit import ends
from tests.aio import aio
from tests.contract.wire.recovery import mount_loop
from tests.contract.wire.wires import WIRES, Wire, composed, spelling, url_of

ROUNDS = 9
OPTIONS = MockOptions(chunk_size=4, chunk_delay_ms=2, retry_after_ms=0, disconnect_delay_ms=1)


def script_of(wire: Wire) -> list[Any]:
    """What the wire's server says; each call has an id that no other server and no other reply uses."""
    entries: list[Any] = []
    for number in range(ROUNDS):
        entries += ["reasoning_success", "rate_limit", _calls(wire, f"a{number}", 1, "hm ")]
        entries += ["partial_eof", "success", _calls(wire, f"b{number}", 3, "")]
        entries += ["max_tokens", "content_filter", "slow_success", _calls(wire, f"c{number}", 2, "well ")]
    return entries


def _calls(wire: Wire, name: str, count: int, thought: str) -> dict[str, Any]:
    """A reply of calls, the last of them without arguments."""
    raw = [('{"command":', ' "ls"}')] * (count - 1) + [("",)]
    ids = (f"{wire.name}-{name}-{number}" for number in range(count))
    calls = [{"id": i, "name": "bash", "args": list(args)} for i, args in zip(ids, raw, strict=True)]
    return {"tools": calls, **({"reasoning": [thought, name]} if thought else {})}


@asynccontextmanager
async def switching(order: list[int]) -> AsyncIterator[tuple[Agent, list[MockModelServer]]]:
    """An agent whose n-th request goes to the wire of that number, and the servers of all wires."""
    async with AsyncExitStack() as stack:
        ctx = await stack.enter_async_context(composed(HttpClient()))
        await mount_loop(ctx, (agent_loop, {"keepRefusedText": True}))
        servers = []
        for wire in WIRES:
            server = MockModelServer(script_of(wire), dialect=spelling(wire), options=OPTIONS)
            servers.append(await stack.enter_async_context(server))
            policy = {"backoff": {"initialDelayMs": 1, "maxDelayMs": 1}}
            await wire.mount(ctx, url_of(wire, server), retryPolicy=policy)

        ctx.use(TOOLS).register(
            typed_tool(
                name="bash",
                description="run",
                output=TEXT_OUTPUT,
                execute=_ran,
                parameters={"command": {"type": "string"}},
            )
        )
        turns = itertools.cycle(order)

        async def choose(
            seed: RequestSeed, following: Callable[[], Awaitable[LlmCallConfig]]
        ) -> LlmCallConfig:
            route = WIRES[next(turns)].route
            config = await following()
            return msgspec.structs.replace(config, provider=route, reasoning_effort=None, max_tokens=None)

        ctx.on(AGENT_REQUEST, choose)
        options = AgentOptions(provider=WIRES[0].route, model="m")
        made = await ctx.use(AGENTS).create(CreateAgent(cwd="/ws", options=options))
        yield made.agent, servers


async def _ran(arguments: Mapping[str, Any], execution: ToolExecution) -> str:
    return "ran" if arguments else ""


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0], [1, 2, 2, 0, 0, 1], [2]], ids=str)
@aio
async def test_no_server_refuses_what_the_others_left_behind(order: list[int]) -> None:
    async with switching(order) as (agent, servers):
        for number in range(14):
            if number % 5 == 3:
                asyncio.get_running_loop().call_later(0.01, lambda: agent.cancel({"kind": "user"}))
            agent.followup(user_message(f"task {number}"))
            if number % 4 == 1:
                agent.followup(user_message("and this"))
            await agent.when_idle()

        assert [server.refused for server in servers] == [[]] * len(servers)
        kinds = {end["kind"] for end in ends(agent.session)}
        assert {"completed", "error"} <= kinds <= {"completed", "error", "aborted", "max-tokens"}
        failures = {end["error"]["code"] for end in ends(agent.session) if end["kind"] == "error"}
        assert failures <= {"CONTENT_FILTER", "REFUSAL"}
        assert verify(agent.session).findings == ()
