"""Row `approval`, mounted: what is decided, in which order, and what the log says of it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsh.agent.prompt import SYSTEM_PROMPT
from dsh.capabilities.approval import APPROVAL, APPROVAL_REQUEST, Approval, ApprovalError, ApprovalRequest
from dsh.kernel import Cancelled, CancelToken, Context
from dsh.plugins import approval
from dsh.session.event import SessionEvent
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.tools.event import TOOLS_PRE_EXECUTE, Ask
from dsh.tools.registry import ToolRegistry
from tests.aio import aio
from tests.deaf import Deaf
from tests.plugins.prompt import told
from tests.tools.kit import StandInAgent, agent_in, call, cancelled, code, text, tool


async def mounted(policy: str | None = None) -> tuple[Context, Approval, StandInAgent]:
    ctx = Context()
    await ctx.plugin(approval, {"policy": policy})
    service = ctx.get(APPROVAL)
    assert service is not None
    agent = StandInAgent(ctx)
    agent.open_turn()
    return ctx, service, agent


def answering(answer: Any, asked: list[Any] | None = None) -> Callable[..., Any]:
    async def listener(request: ApprovalRequest, _: object) -> Any:
        if asked is not None:
            asked.append(request)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return listener


def request(agent: StandInAgent, **changes: Any) -> ApprovalRequest:
    return ApprovalRequest(agent=agent, tool_name="write", **changes)


@aio
async def test_question_and_answer_are_logged_with_one_id() -> None:
    ctx, service, agent = await mounted()
    ctx.on(APPROVAL_REQUEST, answering("allowed-once"))

    outcome = await service.request(request(agent, call_id="c1", reason="why"))

    (asked, question), (decided, answer) = agent.logged("approval/asked", "approval/decided")
    assert outcome == "allowed-once"
    assert (asked, decided) == ("approval/asked", "approval/decided")
    assert list(question) == ["id", "toolName", "callId", "reason"]
    assert question["toolName"] == "write"
    assert answer == {"id": question["id"], "outcome": "allowed-once"}
    await ctx.dispose()


@aio
async def test_what_is_not_given_is_not_logged() -> None:
    ctx, service, agent = await mounted()

    assert await service.request(request(agent)) == "unavailable"
    ((_, question),) = agent.logged("approval/asked")
    assert list(question) == ["id", "toolName"]
    await ctx.dispose()


@aio
async def test_outside_a_turn_nothing_is_asked_or_logged() -> None:
    ctx, service, _ = await mounted()
    agent = StandInAgent(ctx)

    with pytest.raises(ApprovalError, match="open turn"):
        await service.request(request(agent))

    assert agent.logged() == []
    await ctx.dispose()


@aio
async def test_policy_never_rejects_before_any_answerer() -> None:
    ctx, service, agent = await mounted("never")
    asked: list[Any] = []
    ctx.on(APPROVAL_REQUEST, answering("allowed-once", asked), prepend=True)

    assert await service.request(request(agent)) == "rejected"
    assert asked == []
    await ctx.dispose()


@aio
async def test_the_last_policy_of_the_log_counts() -> None:
    ctx, service, agent = await mounted("never")
    assert service.policy_of(None) == service.policy_of(agent.session) == "never"

    agent.session.append("approval/policy", {"policy": "ask"})
    assert service.policy_of(agent.session) == "ask"
    agent.session.append("approval/policy", {"policy": "never", "source": "delegation"})

    assert service.policy_of(agent.session) == "never"
    await ctx.dispose()


@aio
async def test_a_cancelled_call_asks_nobody_even_under_never() -> None:
    ctx, service, agent = await mounted("never")

    assert await service.request(request(agent, signal=cancelled())) == "cancelled"
    await ctx.dispose()


class Hostile:
    """A value that fights back when it is looked at."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("compared")

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        raise RuntimeError("shown")


class HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("told")


@pytest.mark.parametrize(
    "answer",
    [
        RuntimeError("no"), HostileError(), SystemExit(0), KeyboardInterrupt(), asyncio.CancelledError(),
        GeneratorExit(), Cancelled("of its own"),
        "yes", "Allowed-once", "", None, True, 1, Hostile(), ["allowed-once"],
    ],
)  # fmt: skip
@aio
async def test_an_answerer_that_fails_or_answers_nonsense_is_unavailable(answer: Any) -> None:
    ctx, service, agent = await mounted()
    ctx.on(APPROVAL_REQUEST, answering(answer))

    assert await service.request(request(agent)) == "unavailable"
    ((_, decided),) = agent.logged("approval/decided")
    assert decided["outcome"] == "unavailable"
    await ctx.dispose()


@aio
async def test_a_late_answer_is_dropped() -> None:
    ctx, service, agent = await mounted()
    token, gate, asked = CancelToken(), asyncio.Event(), asyncio.Event()

    async def slow(_: object, __: object) -> str:
        asked.set()
        await gate.wait()
        return "allowed-once"

    ctx.on(APPROVAL_REQUEST, slow)
    task = asyncio.create_task(service.request(request(agent, signal=token)))
    await asked.wait()
    token.cancel("user")

    assert await task == "cancelled"
    gate.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(agent.logged("approval/decided")) == 1
    await ctx.dispose()


@aio
async def test_an_answer_that_comes_with_the_cancellation_is_dropped() -> None:
    ctx, service, agent = await mounted()
    token = CancelToken()

    async def cancelling(_: object, __: object) -> str:
        token.cancel("user")
        return "allowed-once"

    ctx.on(APPROVAL_REQUEST, cancelling)

    assert await service.request(request(agent, signal=token)) == "cancelled"
    await ctx.dispose()


@aio
async def test_an_answerer_that_never_ends_goes_with_the_row() -> None:
    ctx, service, agent = await mounted()
    token, deaf = CancelToken(), Deaf()

    ctx.on(APPROVAL_REQUEST, deaf.wait)
    task = asyncio.create_task(service.request(request(agent, signal=token)))
    await deaf.begun.wait()
    token.cancel("user")
    assert await task == "cancelled"
    assert not deaf.ended.is_set()

    await ctx.dispose()
    assert deaf.ended.is_set()


@aio
async def test_an_asker_whose_task_goes_down_leaves_no_answerer_behind() -> None:
    ctx, service, agent = await mounted()
    deaf = Deaf()

    ctx.on(APPROVAL_REQUEST, deaf.wait)
    task = asyncio.create_task(service.request(request(agent)))
    await deaf.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await deaf.ended.wait()
    assert [kind for kind, _ in agent.logged("approval/asked", "approval/decided")] == ["approval/asked"]
    await ctx.dispose()


@pytest.mark.parametrize("at", ["approval/asked", "approval/decided"])
@aio
async def test_where_the_pair_cannot_be_logged_nothing_is_granted(at: str) -> None:
    ctx, service, agent = await mounted()
    asked: list[Any] = []
    ctx.on(APPROVAL_REQUEST, answering("allowed-once", asked))

    def full(seq: int, event: SessionEvent | None) -> None:
        if event is not None and event.type == at:
            raise OSError("disk full")

    agent.session.on_append = full

    with pytest.raises(OSError, match="disk full"):
        await service.request(request(agent))

    assert len(asked) == (at == "approval/decided")
    await ctx.dispose()


@aio
async def test_two_questions_at_once_have_a_pair_each() -> None:
    ctx, service, agent = await mounted()
    gate = asyncio.Event()

    async def by_tool(found: ApprovalRequest, _: object) -> str:
        if found.tool_name == "slow":
            await gate.wait()
            return "rejected"
        gate.set()
        return "allowed-once"

    ctx.on(APPROVAL_REQUEST, by_tool)

    outcomes = await asyncio.gather(
        service.request(ApprovalRequest(agent=agent, tool_name="slow")),
        service.request(ApprovalRequest(agent=agent, tool_name="quick")),
    )

    assert list(outcomes) == ["rejected", "allowed-once"]
    ids = {data["toolName"]: data["id"] for _, data in agent.logged("approval/asked")}
    answers = {data["id"]: data["outcome"] for _, data in agent.logged("approval/decided")}
    assert answers == {ids["slow"]: "rejected", ids["quick"]: "allowed-once"}
    await ctx.dispose()


@aio
async def test_nothing_is_remembered_of_a_grant() -> None:
    ctx, service, agent = await mounted()
    asked: list[Any] = []
    ctx.on(APPROVAL_REQUEST, answering("allowed-once", asked))

    for _ in range(2):
        assert await service.request(request(agent, call_id="c1", reason="why")) == "allowed-once"

    assert len(asked) == 2
    await ctx.dispose()


@pytest.mark.parametrize(
    "data", [{}, {"policy": "always"}, {"policy": None}, {"policy": ["ask"]}, {"policy": "ASK"}]
)
@aio
async def test_a_damaged_policy_refuses(data: Any) -> None:
    ctx, service, agent = await mounted("ask")
    asked: list[Any] = []
    ctx.on(APPROVAL_REQUEST, answering("allowed-once", asked))
    rows = [
        {"type": "approval/policy", "seq": 0, "time": 0, "data": {"policy": "ask"}},
        {"type": "approval/policy", "seq": 1, "time": 0, "data": data},
    ]
    agent.session = Session.seeded(SessionHeader(id="a1", created_at=0), rows)
    agent.open_turn()

    assert service.policy_of(agent.session) == "never"
    assert await service.request(request(agent)) == "rejected"
    assert asked == []
    await ctx.dispose()


@aio
async def test_a_reason_is_logged_as_valid_unicode() -> None:
    ctx, service, agent = await mounted()

    await service.request(request(agent, reason="half \ud83d of it"))

    ((_, question),) = agent.logged("approval/asked")
    assert question["reason"] == "half \ufffd of it"
    await ctx.dispose()


@aio
async def test_answerers_hear_the_agents_of_their_scope() -> None:
    ctx, service, other = await mounted()
    agent, scope = await agent_in(ctx, "scoped")
    agent.open_turn()
    scope.ctx.on(APPROVAL_REQUEST, answering("allowed-once"))

    assert await service.request(request(agent)) == "allowed-once"
    assert await service.request(request(other)) == "unavailable"
    await ctx.dispose()


@aio
async def test_an_asking_policy_with_nobody_there_denies_the_call_and_leaves_a_pair() -> None:
    ctx, _, agent = await mounted()
    tools = ToolRegistry(ctx)
    tools.register(tool())

    async def ask(_: object, __: object) -> Ask:
        return Ask("deletes files")

    ctx.on(TOOLS_PRE_EXECUTE, ask)

    result = await tools.run(call(agent=agent))

    assert result.is_error and code(result) is None and "nobody" in text(result)
    (_, question), (_, answer) = agent.logged("approval/asked", "approval/decided")
    assert question["reason"] == "deletes files" and question["callId"] == "c1"
    assert answer["outcome"] == "unavailable"
    await ctx.dispose()


@aio
async def test_the_model_is_told_the_policy_where_there_is_a_prompt() -> None:
    ctx, _, agent = await mounted()

    assert "ask" in (await told(ctx, agent))["approval:policy"]
    sections = ctx.get(SYSTEM_PROMPT)
    assert sections is not None
    for order in (114, 116):
        sections.context(f"at {order}", order, lambda _: "words")
    assert [*await told(ctx, agent)][-3:] == ["at 114", "approval:policy", "at 116"]
    agent.session.append("approval/policy", {"policy": "never"})
    assert "never" in (await told(ctx, agent))["approval:policy"]
    assert [*await told(ctx, None)] == ["at 114", "at 116"]
    await ctx.dispose()


KINDS = ["allowed-once", "rejected", "cancelled", "unavailable", "nonsense", "raise", "hang", "pass on"]


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 3)), max_size=6),
    st.sampled_from(["ask", "never"]),
    st.integers(0, 4),
)
def test_whatever_answerers_do_each_question_has_one_answer_and_only_a_grant_is_one(
    asked: list[tuple[str, int]], policy: str, cancelled_after: int
) -> None:
    @aio
    async def body() -> None:
        ctx, service, agent = await mounted(policy)
        token = CancelToken()

        async def answer(found: ApprovalRequest, following: Callable[[], Any]) -> Any:
            kind, ticks = asked[int(found.tool_name)]
            for _ in range(ticks):
                await asyncio.sleep(0)
            match kind:
                case "raise":
                    raise SystemExit(1)
                case "hang":
                    await asyncio.Event().wait()
                case "pass on":
                    return await following()
            return kind

        ctx.on(APPROVAL_REQUEST, answer)
        requests = [ApprovalRequest(agent=agent, tool_name=str(at), signal=token) for at in range(len(asked))]
        under_way = [asyncio.ensure_future(service.request(one)) for one in requests]
        for _ in range(cancelled_after):
            await asyncio.sleep(0)
        token.cancel("user")
        outcomes = await asyncio.gather(*under_way)

        for at, outcome in enumerate(outcomes):
            [(place, number)] = [
                (event.seq, event.data["id"])
                for event in agent.session.events()
                if event.type == "approval/asked" and event.data["toolName"] == str(at)
            ]
            [(later, logged)] = [
                (event.seq, event.data["outcome"])
                for event in agent.session.events()
                if event.type == "approval/decided" and event.data["id"] == number
            ]
            assert place < later and logged == outcome
            assert outcome != "allowed-once" or (asked[at][0] == "allowed-once" and policy == "ask")
            assert policy == "ask" or outcome in ("rejected", "cancelled")
        await ctx.dispose()

    body()


@aio
async def test_an_answerer_that_stops_with_the_call_has_not_failed() -> None:
    ctx, service, agent = await mounted()
    errors: list[str] = []
    ctx.export_logs(lambda entry: errors.append(entry.text))
    signal = CancelToken()

    async def stops(asked: ApprovalRequest, _: object) -> Any:
        signal.cancel("enough")
        assert asked.signal is not None
        asked.signal.raise_if_cancelled()

    ctx.on(APPROVAL_REQUEST, stops)

    assert await service.request(request(agent, signal=signal)) == "cancelled"
    assert errors == []
    await ctx.dispose()
