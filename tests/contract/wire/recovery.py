"""The whole loop on a wire in memory; and, written down again, what a retry policy makes of answers."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from dsh.agent.contract import Agent, AgentOptions, CreateAgent
from dsh.agent.registry import AGENTS
from dsh.kernel import Context
from dsh.plugins import agent, agent_loop, llm_retry, session, system_prompt, tools
from dsh.session.message import user_message
from dsh.testing.mock_server.behaviour import behaviours
from dsh.testing.mock_server.plan import MockOptions, Pause, Plan, Stall
from tests.agent.kit import settled
from tests.contract.wire.memory_http import MemoryHttp, Sent
from tests.contract.wire.wires import ANTHROPIC_WIRE, MEMORY, Wire, composed

IDLE_MS = 20_000
OPTIONS = MockOptions(retry_after_ms=1000)
PASSING = {
    "connection_reset": "TRANSPORT",
    "stream_disconnect": "TRANSPORT",
    "partial_disconnect": "TRANSPORT",
    "empty": "EMPTY_RESPONSE",
    "no_content": "EMPTY_RESPONSE",
    "empty_body": "STREAM_CLOSED",
    "stream_eof": "STREAM_CLOSED",
    "partial_eof": "STREAM_CLOSED",
    "missing_done": "STREAM_CLOSED",
    "stall": "TIMEOUT",
    "malformed_json": "MALFORMED_RESPONSE",
    "malformed_event": "MALFORMED_RESPONSE",
    "html_page": "MALFORMED_RESPONSE",
    "rate_limit": "RATE_LIMIT",
    "server_error": "SERVER",
    "service_unavailable": "SERVER",
    "gateway_page": "SERVER",
    "json_error": "SERVER",
    "request_timeout": "HTTP_408",
    "too_early": "HTTP_425",
    "in_band_error": "RATE_LIMIT",
    "in_band_error_first": "RATE_LIMIT",
    "call_disconnect": "TRANSPORT",
    "partial_event_eof": "STREAM_CLOSED",
    "stall_after_text": "TIMEOUT",
    "overloaded": "SERVER",
    "empty_unavailable": "SERVER",
    "error_without_message": "SERVER",
    "error_as_text": "SERVER",
}
FINAL = {
    "auth_error": "AUTH",
    "invalid_request": "INVALID_REQUEST",
    "context_overflow": "CONTEXT_WINDOW_EXCEEDED",
    "quota_exceeded": "QUOTA",
    "content_filter": "CONTENT_FILTER",
    "redirect": "HTTP_307",
    "permission": "AUTH",
    "latin1_page": "AUTH",
    "not_found": "HTTP_404",
    "wrong_path": "HTTP_404",
    "too_large": "INVALID_REQUEST",
    "unknown_finish": "TIRED",
}
ANSWERED = ("success", "slow_success", "reasoning_success", "tool_call_success", "max_tokens")
ON_ANTHROPIC = {"content_filter": "REFUSAL"}


def code_of(wire: Wire, behaviour: str) -> str:
    """The code that a behaviour ends with; empty where it is an answer."""
    if wire is ANTHROPIC_WIRE and behaviour in ON_ANTHROPIC:
        return ON_ANTHROPIC[behaviour]
    return {**PASSING, **FINAL}.get(behaviour, "")


def plan_of(wire: Wire, behaviour: str) -> Plan:
    """What the wire's server sends."""
    return behaviours(wire.dialect.name)[behaviour](wire.dialect, OPTIONS)


def duration_s(plan: Plan) -> float:
    """How long an attempt takes on the clock."""
    pauses = sum(step.ms for step in plan.steps if isinstance(step, Pause))
    return (pauses + IDLE_MS * any(isinstance(step, Stall) for step in plan.steps)) / 1000


class Expected(NamedTuple):
    """What a policy makes of one turn."""

    behaviours: tuple[str, ...]
    """What was answered, in order."""
    kind: str
    """Of the turn's end."""
    code: str
    """Of its failure; empty where there is none."""
    retries: tuple[tuple[int, int, float], ...]
    """`(step, number, wait in ms before jitter)` of each retry."""


def expected_turns(wire: Wire, script: Iterable[str], budget: int) -> Iterator[Expected]:
    """The turns that a script comes to in mode `normal`: a second writing down of `spec/llm.md` §6."""
    played: list[str] = []
    retries: list[tuple[int, int, float]] = []
    step = number = 1
    for behaviour in script:
        played.append(behaviour)
        end: tuple[str, str] | None = None
        code = code_of(wire, behaviour)
        if not code and behaviour == "tool_call_success":
            step, number = step + 1, 1
        elif not code:
            end = ("max-tokens" if behaviour == "max_tokens" else "completed", "")
        elif behaviour in PASSING and number <= budget:
            local = min(500.0 * 2 ** (number - 1), 10_000.0)
            retries.append((step, number, 1000.0 if behaviour == "rate_limit" else local))
            number += 1
        else:
            end = ("error", code)
        if end is not None:
            yield Expected(tuple(played), *end, tuple(retries))
            played, retries, step, number = [], [], 1, 1


class Loop:
    """An agent on a wire in memory."""

    def __init__(self, ctx: Context, wire: Wire, agent: Agent, http: MemoryHttp, retry: Any) -> None:
        self.ctx, self.wire, self.agent, self.http = ctx, wire, agent, http
        self.retry = retry
        """The fiber of the row `llm-retry`."""

    @property
    def sent(self) -> list[Sent]:
        return self.http.sent

    async def prompt(self, words: str) -> None:
        """Give a prompt and wait until the agent is idle."""
        self.agent.followup(user_message(words))
        await self.agent.when_idle()

    def rows(self, kind: str, first: int = 0) -> list[Any]:
        return [event.data for event in self.agent.session.events(first) if event.type == kind]


@asynccontextmanager
async def looped(
    wire: Wire, plans: Sequence[Plan], policy: Mapping[str, Any], **changes: Any
) -> AsyncIterator[Loop]:
    """The rows of a task against these answers. Without jitter unless the policy says so."""
    http = MemoryHttp(plans)
    policy = {"backoff": {"jitterRatio": 0}, **policy}
    async with composed(http) as ctx:
        retry = ctx.plugin(llm_retry, {})
        for module, config in (
            (session, {}),
            (agent, {}),
            (tools, {}),
            (system_prompt, {"includeHarnessIdentity": False}),
            (agent_loop, {}),
        ):
            await settled(ctx.plugin(module, config))
        await settled(retry)
        await wire.mount(ctx, MEMORY, retryPolicy=policy, streamIdleTimeoutMs=IDLE_MS, **changes)
        made = await ctx.use(AGENTS).create(
            CreateAgent(cwd="/ws", options=AgentOptions(provider=wire.route, model="m"))
        )
        yield Loop(ctx, wire, made.agent, http, retry)
        assert http.open_streams == 0, "a stream was left open"
