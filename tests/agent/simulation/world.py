"""Plays a plan through the real rows on a fake clock, and keeps what is to be judged afterwards."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from dsh.agent.contract import (
    AGENT_STATUS,
    Agent,
    AgentOptions,
    CreateAgent,
    RunLimits,
)
from dsh.agent.registry import AGENTS
from dsh.capabilities.compaction import COMPACTION, CompactionError
from dsh.kernel import CancelToken, Context
from dsh.llm.adapter import LlmAdapter, ModelInfo
from dsh.llm.grammar import check_stream
from dsh.llm.registry import LLM, LLM_STREAM, LlmRegistry
from dsh.llm.request import LlmRequest
from dsh.plugins import (
    agent,
    agent_loop,
    approval,
    compaction_basic,
    llm_retry,
    repeat_tool_reminder,
    session,
    system_prompt,
    timeout_policy,
    token_meter,
    tool_result_pruner,
    tools,
)
from dsh.session.chunk import (
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    UsageChunk,
)
from dsh.session.log import Session
from dsh.session.message import user_message
from dsh.tools.definition import TEXT_OUTPUT, Resources
from dsh.tools.event import TOOLS_PRE_EXECUTE, Deny, PreDecision
from dsh.tools.execution import ToolCall, ToolExecution
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool
from tests.agent.kit import settled
from tests.agent.simulation.plan import Act, CallPlan, Limits, Plan, ReplyPlan

WINDOW_TOKENS = 4_000
LONG_CHARS = 6_000


class Body:
    """One run of a tool's body."""

    def __init__(self, tool: str, key: str, began_s: float) -> None:
        self.tool, self.key, self.began_s = tool, key, began_s
        self.ended_s: float | None = None


class Record:
    """What a run left."""

    def __init__(self) -> None:
        self.session: Session
        self.sent: list[str] = []
        """Ids of the messages that were handed to the agent."""
        self.statuses: list[str] = []
        self.requests: list[LlmRequest] = []
        self.bodies: list[Body] = []
        self.errors: list[str] = []
        """What the loop of events was told of: exceptions nobody took."""
        self.left: list[str] = []
        """Tasks that were there when everything had been disposed of."""
        self.hooks_left: Counter[str] = Counter()


class Model(LlmAdapter):
    """Answers by plan, and to a request for a summary with a short text."""

    def __init__(self, plan: Plan, record: Record) -> None:
        self._replies, self._record = list(plan.replies), record

    def resolve_model(self, provider: str, model: str) -> ModelInfo:
        return ModelInfo(
            provider=provider, id=model, name=model, context_window=WINDOW_TOKENS, default_max_tokens=100
        )

    async def stream(self, request: LlmRequest) -> AsyncIterator[Chunk]:
        if request.purpose is not None:
            reply = ReplyPlan("text")
        else:
            self._record.requests.append(request)
            reply = self._replies.pop(0) if self._replies else ReplyPlan("text")
        for chunk in _chunks(reply, len(self._record.requests)):
            await asyncio.sleep(reply.gap_ms / 1000)
            yield chunk
        if reply.kind == "hang":
            await (request.signal or CancelToken()).sleep(1e6)
        if reply.kind == "raise":
            raise ValueError("the adapter is broken")


def _chunks(reply: ReplyPlan, number: int) -> list[Chunk]:
    usage: list[Chunk] = []
    if reply.input_tokens:
        usage = [UsageChunk({"inputTokens": reply.input_tokens, "outputTokens": 7})]
    match reply.kind:
        case "retryable" | "final" | "overflow":
            code = {"retryable": "SERVER", "final": "QUOTA", "overflow": "CONTEXT_WINDOW_EXCEEDED"}[
                reply.kind
            ]
            return [*usage, Finish({"kind": "error", "failure": {"message": "planned", "code": code}})]
        case "empty":
            return [*usage, Finish({"kind": "stop"})]
        case "hang" | "raise":
            return [BlockStart(0, "text"), *[TextDelta(0, "so ")] * (reply.pieces - 1)]
    out: list[Chunk] = []
    if reply.kind == "thought":
        out += [BlockStart(0, "reasoning"), *[ReasoningDelta(0, "hm ")] * reply.pieces]
        out.append(BlockEnd(0, {"type": "reasoning", "text": "hm " * reply.pieces}))
    else:
        out += [BlockStart(0, "text"), *[TextDelta(0, "word ")] * reply.pieces]
        out.append(BlockEnd(0, {"type": "text", "text": "word " * reply.pieces}))
    if reply.kind == "calls":
        for index, call in enumerate(reply.calls, 1):
            call_id, raw = f"c-{number}-{index}", arguments_of(call)
            block = {"type": "tool-call", "id": call_id, "name": call.tool, "arguments": raw}
            out += [
                BlockStart(index, "tool-call"),
                ToolCallDelta(index, call_id, call.tool, raw),
                BlockEnd(index, block),
            ]
    finish = {"calls": "tool-calls", "cut": "max-tokens"}.get(reply.kind, "stop")
    return [*out, *usage, Finish({"kind": finish})]


def arguments_of(call: CallPlan) -> str:
    """The arguments as the model writes them."""
    if call.raw is not None:
        return call.raw
    fields = {"key": call.key, "took_ms": call.took_ms, "outcome": call.outcome, "heeds": call.heeds}
    return json.dumps(fields)


class World:
    """One composition with one agent."""

    def __init__(self, ctx: Context, record: Record, limits: Limits) -> None:
        self._ctx, self._record, self._limits = ctx, record, limits
        self._loop = asyncio.get_running_loop()
        self._strays: set[asyncio.Task[None]] = set()
        self.agent: Agent
        self._dispose: Callable[[], Awaitable[None]]

    async def build(self, plan: Plan) -> None:
        ctx, limits = self._ctx, self._limits
        loop_config: dict[str, Any] = {"maxParallelToolCalls": limits.cap, "onTurnFailure": limits.on_failure}
        if limits.steps is not None:
            loop_config["maxStepsPerTurn"] = limits.steps
        if limits.turn_ms is not None:
            loop_config["maxTurnMs"] = limits.turn_ms
        rows: list[tuple[Any, dict[str, Any]]] = [
            (session, {}),
            (agent, {}),
            (tools, {}),
            (system_prompt, {}),
            (llm_retry, {}),
            (approval, {}),
            (token_meter, {}),
            (tool_result_pruner, {"thresholdChars": 2_000, "headChars": 200, "tailChars": 100}),
            (compaction_basic, {"maxTokens": 200}),
            (timeout_policy, {"defaultTimeoutMs": limits.default_timeout_ms}),
            (repeat_tool_reminder, {"thresholds": [2, 3], "blockAt": 4, "endTurnAt": 5}),
            (agent_loop, loop_config),
        ]
        mounted = [ctx.plugin(LlmRegistry, name="llm")]
        mounted += [ctx.plugin(module, config) for module, config in rows]
        for fiber in mounted:
            await settled(fiber)
        ctx.use(LLM).register_adapter(["p"], Model(plan, self._record))
        ctx.on(LLM_STREAM, check_stream, prepend=True, global_=True)
        ctx.on(AGENT_STATUS, lambda changed: self._record.statuses.append(changed.status))
        ctx.on(TOOLS_PRE_EXECUTE, _policy)
        self._register_tools()
        handle = await ctx.use(AGENTS).create(
            CreateAgent(
                session_id="simulated",
                cwd="/ws",
                options=AgentOptions(provider="p", model="m"),
                limits=RunLimits(steps=limits.run_steps),
            )
        )
        self.agent, self._dispose = handle.agent, handle.dispose
        self._record.session = handle.agent.session

    # -- tools -----------------------------------------------------------------------------------

    def _register_tools(self) -> None:
        for name in ("reader", "writer", "loner", "safe"):
            self._ctx.use(TOOLS).register(
                typed_tool(
                    name=name,
                    description=f"{name} of a simulated run",
                    parameters={
                        "key": {"type": "string", "required": True},
                        "took_ms": {"type": "integer", "required": True},
                        "outcome": {"type": "string", "required": True},
                        "heeds": {"type": "boolean", "required": True},
                    },
                    output=TEXT_OUTPUT,
                    execute=self._body(name),
                    concurrency_safe=name == "safe",
                    resources=_RESOURCES.get(name),
                )
            )

    def _body(self, tool: str) -> Callable[[Any, ToolExecution], Awaitable[Any]]:
        async def run(args: Any, execution: ToolExecution) -> Any:
            body = Body(tool, args["key"], self._loop.time())
            self._record.bodies.append(body)
            try:
                return await self._do(args, execution)
            finally:
                body.ended_s = self._loop.time()

        return run

    async def _do(self, args: Any, execution: ToolExecution) -> Any:
        seconds = args["took_ms"] / 1000
        match args["outcome"]:
            case "steer":
                self.send("steer", long=False)
            case "cancel":
                self.agent.cancel({"kind": "user"}, keep_inbox=True)
            case "spawn":
                self._strays.add(stray := asyncio.create_task(asyncio.sleep(seconds)))
                stray.add_done_callback(self._strays.discard)
        if args["heeds"]:
            await execution.signal.sleep(seconds)
        else:
            await asyncio.sleep(seconds)
        match args["outcome"]:
            case "raise":
                raise RuntimeError("planned")
            case "wrong type":
                return {"no": "text"}
            case "long":
                return "long " * 1_000
            case "context":
                execution.defer_context(user_message("a note", {"kind": "plugin", "plugin": "simulation"}))
            case "conclude":
                execution.conclude_turn()
        return "ok"

    # -- what comes from outside -----------------------------------------------------------------

    def send(self, how: str, *, long: bool) -> None:
        message = user_message("word " * (LONG_CHARS // 5) if long else "a message")
        self._record.sent.append(message["id"])
        {"followup": self.agent.followup, "steer": self.agent.steer, "inject": self.agent.inject}[how](
            message
        )

    async def act(self, act: Act) -> None:
        await asyncio.sleep(act.at_ms / 1000)
        match act.what:
            case "followup" | "steer" | "inject":
                self.send(act.what, long=act.long)
            case "cancel" | "cancel keeping":
                self.agent.cancel({"kind": "user"}, keep_inbox=act.what == "cancel keeping")
            case "continue":
                self.agent.continue_pending()
            case "maintain":
                await self._maintain()
            case "compact":
                await self._compact()
            case "dispose":
                await self._dispose()

    async def _maintain(self) -> None:
        async def job(token: CancelToken) -> None:
            await asyncio.sleep(0.05)

        if self.agent.status == "idle":
            try:
                await self.agent.run_maintenance(job)
            except Exception as error:
                if getattr(error, "code", None) != "busy":
                    raise

    async def _compact(self) -> None:
        try:
            await self._ctx.use(COMPACTION).compact_now(self.agent)
        except CompactionError:
            return

    async def finish(self) -> None:
        """Let the agent come to rest, and end it."""
        await self.agent.when_idle()
        await self._dispose()
        while self._strays:
            await asyncio.wait(tuple(self._strays))


async def _policy(execution: ToolExecution, following: Callable[[], Awaitable[PreDecision]]) -> PreDecision:
    arguments = execution.arguments
    if isinstance(arguments, dict) and arguments.get("outcome") == "deny":
        await asyncio.sleep(0.001)
        return Deny("planned")
    return await following()


def _reads(args: Any, call: ToolCall) -> Resources:
    return Resources(reads=frozenset({args["key"]}))


def _writes(args: Any, call: ToolCall) -> Resources:
    return Resources(writes=frozenset({args["key"]}))


_RESOURCES: dict[str, Callable[[Any, ToolCall], Resources | None]] = {"reader": _reads, "writer": _writes}


async def play(plan: Plan) -> Record:
    """Run a plan to its end, and dispose of everything."""
    record = Record()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(
        lambda _, told: record.errors.append(str(told.get("exception") or told["message"]))
    )
    ctx = Context()
    try:
        world = World(ctx, record, plan.limits)
        await world.build(plan)
        await asyncio.gather(*(world.act(act) for act in plan.acts))
        await world.finish()
    finally:
        await ctx.dispose()
    for _ in range(5):
        await asyncio.sleep(0)
    record.left = [repr(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    return record
