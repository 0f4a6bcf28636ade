"""The tools of a simulated run, a policy over them and somebody who answers when it asks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from dsh.agent.contract import Agent
from dsh.capabilities.approval import ApprovalOutcome, ApprovalRequest
from dsh.kernel import Context
from dsh.session.message import user_message
from dsh.tools.definition import TEXT_OUTPUT, Resources
from dsh.tools.event import Ask, Deny, PreDecision
from dsh.tools.execution import ToolCall, ToolExecution
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool
from tests.agent.simulation.record import Body, Life


class Toolbox:
    """Bodies that do what their arguments say. State: the tasks that they have spawned."""

    def __init__(self, life_of: Callable[[str], Life], send: Callable[[Agent, str], None]) -> None:
        self._life_of, self._send = life_of, send
        self._strays: set[asyncio.Task[None]] = set()

    def register(self, ctx: Context) -> None:
        """A plugin."""
        for name in ("reader", "writer", "loner", "safe"):
            ctx.use(TOOLS).register(
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
            agent: Any = execution.agent
            life, clock = self._life_of(agent.id), asyncio.get_running_loop().time
            body = Body(tool, args["key"], clock(), life)
            life.bodies.append(body)
            try:
                return await self._do(args, execution, agent)
            finally:
                body.ended_s = clock()

        return run

    async def _do(self, args: Any, execution: ToolExecution, agent: Agent) -> Any:
        seconds = args["took_ms"] / 1000
        match args["outcome"]:
            case "steer":
                self._send(agent, "steer")
            case "cancel":
                agent.cancel({"kind": "user"}, keep_inbox=True)
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

    async def strays_end(self) -> None:
        while self._strays:
            await asyncio.wait(tuple(self._strays))


async def policy(execution: ToolExecution, following: Callable[[], Awaitable[PreDecision]]) -> PreDecision:
    """A listener of `tools/pre-execute`."""
    arguments = execution.arguments
    match arguments.get("outcome") if isinstance(arguments, dict) else None:
        case "deny":
            await asyncio.sleep(0.001)
            return Deny("planned")
        case "ask" if arguments.get("heeds") is True:
            return Ask("allow this")
        case "ask":
            return Ask("nobody knows")
    return await following()


async def answerer(
    request: ApprovalRequest, following: Callable[[], Awaitable[ApprovalOutcome]]
) -> ApprovalOutcome:
    """A listener of `approval/request`: takes its time."""
    await asyncio.sleep(2)
    return "allowed-once" if request.reason == "allow this" else await following()


def _reads(args: Any, call: ToolCall) -> Resources:
    return Resources(reads=frozenset({args["key"]}))


def _writes(args: Any, call: ToolCall) -> Resources:
    return Resources(writes=frozenset({args["key"]}))


_RESOURCES: dict[str, Callable[[Any, ToolCall], Resources | None]] = {"reader": _reads, "writer": _writes}
