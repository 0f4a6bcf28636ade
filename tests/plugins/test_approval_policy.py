"""Approvals in a whole loop: what each policy does to a call that asks, and the change of a policy."""

from collections.abc import Callable
from typing import Any

import pytest

from dsh.agent.contract import Agent
from dsh.capabilities.approval import (
    APPROVAL,
    APPROVAL_REQUEST,
    MESSAGE_OWNER,
    ApprovalError,
    ApprovalPolicy,
    ApprovalRequest,
)
from dsh.plugins import approval
from dsh.session.error import ReentrantAppend
from dsh.session.message import text_of
from dsh.tools.event import TOOLS_PRE_EXECUTE, Ask
from dsh.tools.pipeline import REFUSALS
from tests.agent.kit import Loop, calls, data_of, ends, loop, text, texts_of, types
from tests.aio import aio

ROW = (approval, {"policy": "ask"})


def asking(run: Loop, reason: str | None = "deletes files") -> list[str]:
    """Put every call to the person; answers the names of the tools whose bodies ran."""
    ran: list[str] = []

    async def ask(_: object, __: object) -> Ask:
        return Ask(reason)

    async def body(_: object, __: object) -> str:
        ran.append("t")
        return "done"

    run.ctx.on(TOOLS_PRE_EXECUTE, ask)
    run.tool("t", body)
    return ran


def answering(run: Loop, answer: str, asked: list[ApprovalRequest] | None = None) -> None:
    async def answer_it(request: ApprovalRequest, _: object) -> str:
        if asked is not None:
            asked.append(request)
        return answer

    run.ctx.on(APPROVAL_REQUEST, answer_it, prepend=True)


def results(agent: Agent) -> list[Any]:
    return [block for data in data_of(agent.session, "tool/result") for block in data["message"]["content"]]


def test_the_model_can_tell_the_refusals_apart() -> None:
    assert len(set(REFUSALS.values())) == len(REFUSALS) == 3


@pytest.mark.parametrize(
    ("policy", "answer", "outcome", "told"),
    [
        ("ask", None, "unavailable", REFUSALS["unavailable"]),
        ("ask", "allowed-once", "allowed-once", None),
        ("ask", "rejected", "rejected", REFUSALS["rejected"]),
        ("ask", "cancelled", "cancelled", REFUSALS["cancelled"]),
        ("ask", "unavailable", "unavailable", REFUSALS["unavailable"]),
        ("never", None, "rejected", REFUSALS["rejected"]),
        ("never", "allowed-once", "rejected", REFUSALS["rejected"]),
    ],
)
@aio
async def test_what_each_policy_makes_of_a_call_that_asks(
    policy: str, answer: str | None, outcome: str, told: str | None
) -> None:
    asked: list[ApprovalRequest] = []
    async with loop(calls(("c1", "t", "{}")), text("bye"), rows=[(approval, {"policy": policy})]) as run:
        ran = asking(run)
        if answer is not None:
            answering(run, answer, asked)
        agent = await run.agent()

        await run.prompt(agent, "go")

        [question], [decided] = (
            data_of(agent.session, "approval/asked"),
            data_of(agent.session, "approval/decided"),
        )
        assert question == {"id": question["id"], "toolName": "t", "callId": "c1", "reason": "deletes files"}
        assert decided == {"id": question["id"], "outcome": outcome}
        around = [kind for kind in types(agent.session) if kind.startswith(("tool/", "approval/"))]
        assert around == ["tool/call", "approval/asked", "approval/decided", "tool/result"]
        assert (ran == ["t"]) == (told is None)
        assert len(asked) == (policy == "ask" and answer is not None)
        [result] = results(agent)
        assert result["isError"] == (told is not None)
        assert "error" not in data_of(agent.session, "tool/result")[0]
        said = "done" if told is None else f"Error: {told}"
        assert result["content"][0]["text"] == said
        assert texts_of(run.model.requests[1])[-1] == f"user: result c1: {said}"
        assert ends(agent.session) == [{"kind": "completed"}]


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("deletes files", "deletes files"),
        (None, "this call needs an approval and no approval service is there"),
    ],
)
@aio
async def test_without_the_row_a_call_that_asks_is_denied(reason: str | None, told: str) -> None:
    async with loop(calls(("c1", "t", "{}")), text("bye")) as run:
        ran = asking(run, reason)
        agent = await run.agent()

        await run.prompt(agent, "go")

        assert ran == []
        assert results(agent)[0]["content"][0]["text"] == f"Error: {told}"
        assert data_of(agent.session, "approval/asked") == []


@aio
async def test_guards_have_their_say_after_a_grant() -> None:
    async with loop(calls(("c1", "t", "{}")), text("bye"), rows=[ROW]) as run:
        ran = asking(run)
        answering(run, "allowed-once")
        run.tools.guard(lambda execution: "not on a Sunday")
        agent = await run.agent()

        await run.prompt(agent, "go")

        assert ran == []
        assert results(agent)[0]["content"][0]["text"] == "Error: not on a Sunday"
        assert data_of(agent.session, "approval/decided")[0]["outcome"] == "allowed-once"


@aio
async def test_a_turn_that_is_cancelled_while_it_asks_ends_with_a_pair_and_no_call() -> None:
    async with loop(calls(("c1", "t", "{}"), ("c2", "t", "{}")), text("bye"), rows=[ROW]) as run:
        ran = asking(run)
        agent = await run.agent()

        async def cancel(_: object, following: Callable[[], Any]) -> Any:
            agent.cancel({"kind": "user"})
            return await following()

        run.ctx.on(APPROVAL_REQUEST, cancel)
        await run.prompt(agent, "go")

        assert ran == []
        assert [data["outcome"] for data in data_of(agent.session, "approval/decided")] == ["cancelled"]
        codes = [data["error"]["code"] for data in data_of(agent.session, "tool/result")]
        assert codes == ["ABORTED_BEFORE_DISPATCH"] * 2
        assert ends(agent.session) == [{"kind": "aborted", "reason": {"kind": "user"}}]


# -- the change of a policy ------------------------------------------------------------------------


def set_policy(run: Loop, agent: Agent, policy: ApprovalPolicy) -> bool:
    return run.ctx.use(APPROVAL).set_policy(agent, policy)


def told_of_policy(agent: Agent) -> list[str]:
    """The texts of the messages about a change that entered the history."""
    return [
        text_of(data)
        for data in data_of(agent.session, "user/message")
        if data["source"] == {"kind": "plugin", "plugin": MESSAGE_OWNER}
    ]


@aio
async def test_a_change_is_logged_and_told_at_the_next_step_and_wakes_nobody() -> None:
    async with loop(text("bye"), rows=[ROW]) as run:
        agent = await run.agent()

        assert set_policy(run, agent, "never") is True

        assert types(agent.session) == ["approval/policy", "agent/inbox/spliced"]
        assert data_of(agent.session, "approval/policy") == [{"policy": "never"}]
        assert agent.status == "idle" and run.model.requests == []
        assert run.ctx.use(APPROVAL).policy_of(agent.session) == "never"

        await run.prompt(agent, "go")
        await run.prompt(agent, "again")

        [told] = told_of_policy(agent)
        assert "was changed" in told and "Approval policy: never." in told
        assert sum("was changed" in line for line in texts_of(run.model.requests[1])) == 1


@aio
async def test_the_policy_that_holds_is_not_set_again() -> None:
    async with loop(text("bye"), rows=[ROW]) as run:
        agent = await run.agent()

        assert set_policy(run, agent, "ask") is False
        assert set_policy(run, agent, "never") is True
        assert set_policy(run, agent, "never") is False

        assert types(agent.session) == ["approval/policy", "agent/inbox/spliced"]


@aio
async def test_a_change_in_a_turn_counts_for_the_next_call_and_is_told_with_the_results() -> None:
    replies = [calls(("c1", "t", "{}")), calls(("c2", "t", "{}")), text("bye")]
    async with loop(*replies, rows=[(approval, {"policy": "never"})]) as run:
        ran = asking(run)
        answering(run, "allowed-once")
        agent = await run.agent()

        def change() -> None:
            set_policy(run, agent, "ask")

        run.when("tool/result", lambda _: run.soon(change))

        await run.prompt(agent, "go")

        outcomes = [data["outcome"] for data in data_of(agent.session, "approval/decided")]
        assert outcomes == ["rejected", "allowed-once"]
        assert ran == ["t"]
        assert len(told_of_policy(agent)) == 1
        assert any("Approval policy: ask." in line for line in texts_of(run.model.requests[1]))


@aio
async def test_the_snapshot_of_the_prompt_follows_the_policy() -> None:
    async with loop(text("bye"), rows=[ROW]) as run:
        agent = await run.agent()
        await run.prompt(agent, "go")
        set_policy(run, agent, "never")
        await run.prompt(agent, "again")

        sections = [
            section["text"]
            for data in data_of(agent.session, "user/message")
            for section in data["source"].get("sections", ())
            if section["name"] == "approval:policy"
        ]
        assert [text.split(".")[0] for text in sections] == ["Approval policy: ask", "Approval policy: never"]


@aio
async def test_an_agent_that_has_ended_gets_no_policy() -> None:
    async with loop(text("bye"), rows=[ROW]) as run:
        handle = await run.create()
        await handle.dispose()

        with pytest.raises(ApprovalError, match="has ended"):
            set_policy(run, handle.agent, "never")

        assert types(handle.agent.session) == []


@aio
async def test_what_is_no_policy_is_refused() -> None:
    async with loop(text("bye"), rows=[ROW]) as run:
        agent = await run.agent()

        with pytest.raises(ApprovalError, match="no approval policy") as caught:
            set_policy(run, agent, "always")  # type: ignore[arg-type]

        assert caught.value.hint == "policies: ask, never"
        assert types(agent.session) == []


@aio
async def test_an_observer_of_the_log_cannot_set_it_at_once_and_changes_nothing() -> None:
    refused: list[Exception] = []
    async with loop(text("bye"), rows=[ROW]) as run:
        agent = await run.agent()

        def at_once(_: object) -> None:
            try:
                set_policy(run, agent, "never")
            except ReentrantAppend as error:
                refused.append(error)

        run.when("turn/start", at_once)
        await run.prompt(agent, "go")

        assert len(refused) == 1
        assert data_of(agent.session, "approval/policy") == []
        assert told_of_policy(agent) == []


@aio
async def test_a_resumed_fold_has_the_policy_that_was_set() -> None:
    async with loop(text("bye"), rows=[ROW]) as run:
        agent = await run.agent()
        set_policy(run, agent, "never")

        assert run.ctx.use(APPROVAL).policy_of(agent.session.copy()) == "never"
