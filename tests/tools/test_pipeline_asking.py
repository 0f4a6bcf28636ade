"""A policy that asks: what the approval service makes of it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from dsh.capabilities.approval import APPROVAL, ApprovalOutcome, ApprovalRequest
from dsh.kernel import CancelToken, Context
from dsh.session.log import Session
from dsh.tools.event import (
    TOOLS_PRE_EXECUTE,
    Allow,
    Ask,
)
from tests.aio import aio
from tests.tools.kit import StandInAgent, call, code, new_registry, text, tool
from tests.tools.stages import answering, body


class Answers:
    """An approval service that answers from a list."""

    def __init__(self, *outcomes: Any) -> None:
        self.outcomes = list(outcomes)
        self.asked: list[ApprovalRequest] = []

    async def request(self, request: ApprovalRequest) -> ApprovalOutcome:
        self.asked.append(request)
        outcome: Any = self.outcomes.pop(0)
        if isinstance(outcome, CancelToken):
            outcome.cancel("user")
            return "cancelled"
        if isinstance(outcome, Exception):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    def policy_of(self, session: Session | None) -> Any:
        return "ask"

    def set_policy(self, agent: object, policy: object) -> bool:
        return False


def asking(outcomes: Any, reason: str | None = "writes a file") -> tuple[Any, list[str], Answers]:
    ctx, tools = new_registry()
    ran: list[str] = []
    tools.register(tool("t", body(lambda _: ran.append("ran"))))
    answers = Answers(*outcomes)
    ctx.provide(APPROVAL, answers)
    ctx.on(TOOLS_PRE_EXECUTE, answering(Ask(reason)))
    return tools, ran, answers


@aio
async def test_ask_without_an_approval_service_is_a_denial_with_the_askers_reason() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    agent = StandInAgent(ctx)
    effect = ctx.on(TOOLS_PRE_EXECUTE, answering(Ask("writes a file")))

    assert text(await tools.run(call(agent=agent))) == "Error: writes a file"
    effect()
    ctx.on(TOOLS_PRE_EXECUTE, answering(Ask()))
    assert "approval" in text(await tools.run(call(agent=agent)))


@aio
async def test_ask_without_an_agent_is_a_denial() -> None:
    tools, ran, answers = asking(["allowed-once"])

    result = await tools.run(call())

    assert result.is_error and ran == [] and answers.asked == []


@aio
async def test_each_outcome_of_an_approval_has_its_own_text() -> None:
    tools, ran, answers = asking(["allowed-once", "rejected", "cancelled", "unavailable"])
    agent = StandInAgent(Context())

    results = [await tools.run(call(agent=agent)) for _ in range(4)]

    assert [r.is_error for r in results] == [False, True, True, True]
    assert len({text(r) for r in results}) == 4
    assert {code(r) for r in results[1:]} == {None}, "they are denials"
    assert ran == ["ran"]
    assert {(r.tool_name, r.call_id, r.reason) for r in answers.asked} == {("t", "c1", "writes a file")}


@aio
async def test_guards_run_after_a_granted_approval() -> None:
    tools, ran, _ = asking(["allowed-once"])
    tools.guard(lambda _: "still no")

    assert text(await tools.run(call(agent=StandInAgent(Context())))) == "Error: still no"
    assert ran == []


@aio
async def test_cancelled_while_asking_is_aborted_before_dispatch() -> None:
    token = CancelToken()
    tools, ran, _ = asking([token])

    result = await tools.run(call(agent=StandInAgent(Context()), signal=token))

    assert code(result) == "ABORTED_BEFORE_DISPATCH" and ran == []


@aio
async def test_an_approval_that_raises_denies() -> None:
    tools, ran, _ = asking([RuntimeError("log is full")])

    assert text(await tools.run(call(agent=StandInAgent(Context())))) == "Error: log is full"
    assert ran == []


@aio
async def test_allow_is_what_listeners_get_from_next() -> None:
    ctx, tools = new_registry()
    tools.register(tool())
    seen: list[object] = []

    async def look(_: object, following: Callable[[], Any]) -> Any:
        seen.append(await following())
        return seen[0]

    ctx.on(TOOLS_PRE_EXECUTE, look)
    await tools.run(call())

    assert seen == [Allow()]


@pytest.mark.parametrize("outcome", ["maybe", "", None, True])
@aio
async def test_an_answer_that_is_none_denies(outcome: Any) -> None:
    tools, ran, _ = asking([outcome])
    agent = StandInAgent(Context())

    assert "nobody is there to give it" in text(await tools.run(call(agent=agent)))
    assert ran == []


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
@aio
async def test_an_approval_service_that_would_end_the_process_denies(error: BaseException) -> None:
    class Ends(Answers):
        async def request(self, request: ApprovalRequest) -> ApprovalOutcome:
            raise error

    ctx, tools = new_registry()
    ran: list[str] = []
    tools.register(tool("t", body(lambda _: ran.append("ran"))))
    ctx.provide(APPROVAL, Ends())
    ctx.on(TOOLS_PRE_EXECUTE, answering(Ask()))

    result = await tools.run(call(agent=StandInAgent(ctx)))

    assert text(result).startswith("Error: the approval service failed: ")
    assert ran == []
