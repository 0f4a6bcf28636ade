"""Listeners of a simulated run that do, once each, what a listener of theirs should not or seldom does."""

import asyncio
from collections.abc import Callable
from typing import Any

from dsh.agent.contract import (
    AGENT_INBOX_CLAIMED,
    AGENT_INBOX_INSERTED,
    AGENT_PRE_STEP,
    AGENT_REQUEST,
    AGENT_REQUEST_ERROR,
    AGENT_STATUS,
    AGENT_TURN_STOPPING,
    Agent,
)
from dsh.agent.prompt import SYSTEM_PROMPT_ASSEMBLE
from dsh.agent.registry import AGENTS
from dsh.capabilities.approval import APPROVAL_REQUEST
from dsh.kernel import Context, Event
from dsh.llm.registry import LLM_STREAM
from dsh.session.store import SESSION_EVENT
from dsh.tools.event import TOOLS_EXECUTE, TOOLS_POST_EXECUTE, TOOLS_PRE_EXECUTE, TOOLS_RESULT
from tests.agent.simulation.plan import LISTENED, Meddler

EVENTS: dict[str, Event[Any, Any]] = {
    event.name: event
    for event in (
        *(AGENT_PRE_STEP, AGENT_REQUEST, AGENT_REQUEST_ERROR, AGENT_TURN_STOPPING, AGENT_STATUS),
        *(AGENT_INBOX_INSERTED, AGENT_INBOX_CLAIMED, SYSTEM_PROMPT_ASSEMBLE, LLM_STREAM, SESSION_EVENT),
        *(TOOLS_PRE_EXECUTE, TOOLS_EXECUTE, TOOLS_POST_EXECUTE, TOOLS_RESULT, APPROVAL_REQUEST),
    )
}
assert set(EVENTS) == set(LISTENED)


def meddle(ctx: Context, plan: Meddler, send: Callable[[Agent, str], None]) -> None:
    """Install the listener."""
    event = EVENTS[plan.event]
    count = 0

    def is_time() -> bool:
        nonlocal count
        count += 1
        return count == plan.time

    def at_once(payload: Any) -> None:
        match plan.does:
            case "raise":
                raise RuntimeError("a meddler")
            case "exit":
                raise SystemExit(3)
            case "steer":
                asyncio.get_running_loop().call_soon(_to(ctx, payload, lambda agent: send(agent, "steer")))
            case "cancel":
                asyncio.get_running_loop().call_soon(_to(ctx, payload, _cancel))

    async def over_time(payload: Any) -> None:
        at_once(payload)
        await asyncio.sleep({"delay": 3, "stall": 60}.get(plan.does, 0))

    def observer(payload: Any) -> None:
        if is_time():
            at_once(payload)

    async def asked(payload: Any) -> None:
        if is_time():
            await over_time(payload)

    async def around(payload: Any, following: Callable[[], Any]) -> Any:
        if not is_time():
            return await following()
        await over_time(payload)
        match plan.does:
            case "wrong":
                return "no answer at all"
            case "twice":
                await following()
        return await following()

    def around_stream(payload: Any, following: Callable[[], Any]) -> Any:
        if is_time():
            at_once(payload)
        return following()

    by_mode: dict[str, Callable[..., Any]] = {"waterfall": around, "serial": asked, "emit": observer}
    ctx.on(event, around_stream if event is LLM_STREAM else by_mode[event.mode])


def _to(ctx: Context, payload: Any, act: Callable[[Agent], None]) -> Callable[[], None]:
    """Does it to the agent that the payload is about, if that still lives."""
    about = getattr(payload, "agent", None) or getattr(getattr(payload, "execution", None), "agent", None)
    agent_id = about.id if about is not None else getattr(payload, "session_id", None)

    def later() -> None:
        agents = ctx.get(AGENTS)
        agent = None if agents is None or agent_id is None else agents.get(agent_id)
        if agent is not None:
            act(agent)

    return later


def _cancel(agent: Agent) -> None:
    agent.cancel({"kind": "user"}, keep_inbox=True)
