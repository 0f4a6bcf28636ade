"""The whole loop on a wire in memory; and, written down again, what a retry policy makes of answers."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
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
from tests.contract.wire.outcomes import FAILS, failures
from tests.contract.wire.wires import MEMORY, Wire, composed

Row = tuple[ModuleType, Mapping[str, Any]]
IDLE_MS = 20_000
OPTIONS = MockOptions(retry_after_ms=1000)
RETRYABLE = {
    *("EMPTY_RESPONSE", "HTTP_408", "HTTP_425", "INSUFFICIENT_SYSTEM_RESOURCE", "MALFORMED_RESPONSE"),
    *("RATE_LIMIT", "SERVER", "STREAM_CLOSED", "TIMEOUT", "TRANSPORT"),
}
"""The codes that are tried again where a policy names none."""
BY_OPTIONS = {"endless_keep_alive", "overflow_by_length", "overflow_by_usage"}
"""What is no fault on every wire, or under no options of its route."""
BY_HEADERS = {"rate_limit_ms", "rate_limit_date", "rate_limit_reset", "rate_limit_untold"}
"""The same refusal with its wait told otherwise."""
PLAYED = [name for name in FAILS if name not in BY_OPTIONS | BY_HEADERS]
PASSING = [name for name in PLAYED if FAILS[name] in RETRYABLE]
FINAL = [name for name in PLAYED if FAILS[name] not in RETRYABLE]
ANSWERED = ["success", "slow_success", "reasoning_success", "tool_call_success", "max_tokens"]


def code_of(wire: Wire, behaviour: str) -> str:
    """The code that a behaviour ends with; empty where it is an answer."""
    return failures(wire).get(behaviour, "")


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
        elif code in RETRYABLE and number <= budget:
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


async def mount_loop(ctx: Context, *rows: Row) -> Any:
    """Mount the rows of a task, and these; the fiber of `llm-retry` is returned."""
    config: dict[ModuleType, Mapping[str, Any]] = {module: {} for module in (session, agent, tools)}
    config[system_prompt] = {"includeHarnessIdentity": False}
    config[agent_loop] = {}
    retry = ctx.plugin(llm_retry, {})
    for module, chosen in {**config, **dict(rows)}.items():
        await settled(ctx.plugin(module, chosen))
    await settled(retry)
    return retry


@asynccontextmanager
async def looped(
    wire: Wire,
    plans: Sequence[Plan],
    policy: Mapping[str, Any],
    *,
    rows: Sequence[Row] = (),
    http: MemoryHttp | None = None,
) -> AsyncIterator[Loop]:
    """The rows of a task against these answers. Without jitter unless the policy says so."""
    http = http or MemoryHttp(plans)
    policy = {"backoff": {"jitterRatio": 0}, **policy}
    async with composed(http) as ctx:
        retry = await mount_loop(ctx, *rows)
        await wire.mount(ctx, MEMORY, retryPolicy=policy, streamIdleTimeoutMs=IDLE_MS)
        made = await ctx.use(AGENTS).create(
            CreateAgent(cwd="/ws", options=AgentOptions(provider=wire.route, model="m"))
        )
        yield Loop(ctx, wire, made.agent, http, retry)
        assert http.open_streams == 0, "a stream was left open"
