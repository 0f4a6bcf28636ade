"""Row `user-questions`: who may ask what, what the channel may answer, and the code of everything else."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any, get_args

import pytest

from dsh.agent.contract import Agent, CreateAgent
from dsh.agent.registry import AGENTS
from dsh.capabilities.questions import (
    USER_QUESTIONS,
    Answer,
    PlanReview,
    Question,
    QuestionCode,
    QuestionOption,
    QuestionRequest,
    UserQuestionError,
    UserQuestions,
)
from dsh.kernel import CancelToken, Context
from dsh.plugins import user_questions
from tests.agent.kit import Loop, loop, text, types
from tests.aio import aio
from tests.deaf import Deaf
from tests.tools.kit import cancelled

ROW: tuple[ModuleType, dict[str, Any]] = (user_questions, {})
YES_NO = (QuestionOption(label="Yes"), QuestionOption(label="No", description="Stop."))
GO = Question(id="go", question="Go on?", options=YES_NO)
WHY = Question(id="why", question="Why?")
MANY = Question(id="many", question="Which?", options=YES_NO, multi_select=True)


class Channel:
    """A person who answers by a function, and remembers what was asked."""

    def __init__(self, answer: Any = None) -> None:
        self.answer = answer
        self.asked: list[QuestionRequest] = []

    def ask(self, request: QuestionRequest) -> Awaitable[Sequence[Answer] | None]:
        self.asked.append(request)
        return self._ask(request)

    async def _ask(self, request: QuestionRequest) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return await self.answer(request) if callable(self.answer) else self.answer


@asynccontextmanager
async def asking(channel: Channel | None = None) -> AsyncIterator[tuple[Loop, UserQuestions, Agent]]:
    async with loop(text("bye"), rows=[ROW]) as run:
        service = run.ctx.use(USER_QUESTIONS)
        if channel is not None:
            service.serve(channel)
        yield run, service, await run.agent()


def is_served(service: UserQuestions) -> bool:
    return service.has_provider


async def refused(
    service: UserQuestions, agent: Agent, *questions: Question, **more: Any
) -> UserQuestionError:
    with pytest.raises(UserQuestionError) as caught:
        await service.ask(QuestionRequest(agent=agent, questions=questions, **more))
    return caught.value


@aio
async def test_answers_come_one_each_in_order_and_nothing_is_logged() -> None:
    answers = [Answer(id="go", selected=("Yes",)), Answer(id="why", custom="because"), Answer(id="many")]
    answers[2] = Answer(id="many", selected=("No", "Yes"), custom="both")
    channel = Channel(answers)
    async with asking(channel) as (_, service, agent):
        signal = CancelToken()
        found = await service.ask(QuestionRequest(agent=agent, questions=(GO, WHY, MANY), signal=signal))

        assert found == tuple(answers)
        assert signal._callbacks == []
        assert channel.asked[0].questions == (GO, WHY, MANY)
        assert types(agent.session) == []


@aio
async def test_a_list_of_labels_and_broken_unicode_are_made_sound() -> None:
    channel = Channel([Answer(id="go", selected=["Yes"], custom="half \ud83d")])  # type: ignore[arg-type]
    async with asking(channel) as (_, service, agent):
        found = await service.ask(QuestionRequest(agent=agent, questions=(GO,)))

        assert found == (Answer(id="go", selected=("Yes",), custom="half \ufffd"),)


@aio
async def test_without_a_channel_the_answer_is_at_once_that_nobody_is_there() -> None:
    async with asking() as (_, service, agent):
        assert not is_served(service)

        error = await refused(service, agent, GO)

        assert error.code == "NO_PROVIDER"
        assert "nobody is there" in str(error)


@aio
async def test_there_is_one_channel_and_it_goes_with_who_opened_it() -> None:
    async with asking() as (run, service, agent):

        def front_end(inner: Context) -> None:
            inner.use(USER_QUESTIONS).serve(Channel([Answer(id="go", selected=("No",))]))

        fiber = run.ctx.inject([USER_QUESTIONS], front_end)
        await fiber
        assert is_served(service)
        with pytest.raises(UserQuestionError) as caught:
            service.serve(Channel())
        assert caught.value.code == "DUPLICATE_PROVIDER"
        [answer] = await service.ask(QuestionRequest(agent=agent, questions=(GO,)))
        assert answer.selected == ("No",)

        await fiber.dispose()

        assert not is_served(service)
        assert (await refused(service, agent, GO)).code == "NO_PROVIDER"
        service.serve(Channel())


@pytest.mark.parametrize(
    ("questions", "code"),
    [
        ((), "EMPTY_QUESTIONS"),
        ((GO, GO), "BAD_QUESTIONS"),
        ((Question(id="a", question="  "),), "BAD_QUESTIONS"),
        ((Question(id="a", question="?", options=(YES_NO[0], YES_NO[0])),), "BAD_QUESTIONS"),
        ((Question(id="a", question="?", options=(QuestionOption(label=" "),)),), "BAD_QUESTIONS"),
    ],
)
@aio
async def test_malformed_questions_reach_nobody(questions: tuple[Question, ...], code: str) -> None:
    channel = Channel()
    async with asking(channel) as (_, service, agent):
        assert (await refused(service, agent, *questions)).code == code
        assert channel.asked == []


@pytest.mark.parametrize(
    ("questions", "intent", "is_good"),
    [
        ((GO,), PlanReview("Yes"), True),
        ((GO,), PlanReview("Approve"), False),
        ((WHY,), PlanReview("Yes"), False),
        ((GO, WHY), PlanReview("Yes"), False),
        ((GO,), "plan-review", False),
    ],
)
@aio
async def test_the_review_of_a_plan_is_one_question_that_can_be_approved(
    questions: tuple[Question, ...], intent: Any, is_good: bool
) -> None:
    channel = Channel([Answer(id="go", selected=("Yes",))])
    async with asking(channel) as (_, service, agent):
        if is_good:
            await service.ask(QuestionRequest(agent=agent, questions=questions, intent=intent))
            assert channel.asked[0].intent == intent
        else:
            assert (await refused(service, agent, *questions, intent=intent)).code == "BAD_INTENT"
            assert channel.asked == []


@aio
async def test_an_agent_that_has_ended_asks_nobody() -> None:
    channel = Channel()
    async with asking(channel) as (run, service, _):
        handle = await run.create()
        await handle.dispose()

        assert (await refused(service, handle.agent, GO)).code == "CALLER_NOT_LIVE"
        assert channel.asked == []


@aio
async def test_an_agent_that_another_live_one_owns_asks_nobody() -> None:
    channel = Channel([Answer(id="go", selected=("Yes",))])
    async with asking(channel) as (_, service, parent):
        agents = parent.ctx.get(AGENTS)
        assert agents is not None
        child = await agents.create(CreateAgent(session_id="child"))

        error = await refused(service, child.agent, GO)

        assert error.code == "DELEGATED_CALLER"
        assert "final result" in str(error)
        assert channel.asked == []
        assert await service.ask(QuestionRequest(agent=parent, questions=(GO,)))


@aio
async def test_a_dismissed_question_has_its_code() -> None:
    async with asking(Channel(None)) as (_, service, agent):
        assert (await refused(service, agent, GO)).code == "ASK_CANCELLED"


class HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("told")


@pytest.mark.parametrize(
    "answer",
    [
        [], "Yes", 7, {"id": "go"}, [None], ["Yes"], [Answer(id="why", custom="x")], [Answer(id="go")],
        [Answer(id="go", custom="  ")], [Answer(id="go", selected=("Maybe",))],
        [Answer(id="go", selected=("Yes", "No"))], [Answer(id="go", selected=("Yes", "Yes"))],
        [Answer(id="go", selected="Yes")],  # type: ignore[arg-type]
        [Answer(id="go", selected=([],))],  # type: ignore[arg-type]
        [Answer(id="go", selected=("Yes",), custom=7)],  # type: ignore[arg-type]
        [Answer(id="go", selected=("Yes",))] * 2,
        RuntimeError("broken"), HostileError(), SystemExit(0), KeyboardInterrupt(), asyncio.CancelledError(),
    ],
)  # fmt: skip
@aio
async def test_a_channel_that_fails_or_answers_something_else_has_its_code(answer: Any) -> None:
    async with asking(Channel(answer)) as (_, service, agent):
        error = await refused(service, agent, GO)

        assert error.code == "BAD_ANSWER"
        assert str(error).startswith("the channel for questions ")


@aio
async def test_a_channel_that_is_no_coroutine_function_has_failed() -> None:
    class Wrong:
        def ask(self, request: QuestionRequest) -> Any:
            return [Answer(id="go", selected=("Yes",))]

    async with asking() as (_, service, agent):
        service.serve(Wrong())

        assert (await refused(service, agent, GO)).code == "BAD_ANSWER"


@aio
async def test_a_channel_may_say_why_in_a_code_of_its_own() -> None:
    async with asking(Channel(UserQuestionError("away", code="ASK_CANCELLED"))) as (_, service, agent):
        error = await refused(service, agent, GO)

        assert (error.code, str(error)) == ("ASK_CANCELLED", "away")


@aio
async def test_who_is_cancelled_before_asking_asks_nobody() -> None:
    channel = Channel()
    async with asking(channel) as (_, service, agent):
        assert (await refused(service, agent, signal=cancelled())).code == "ASK_ABORTED"
        assert channel.asked == []


@aio
async def test_a_cancellation_ends_the_wait_and_the_late_answer_is_dropped() -> None:
    token, begun, gate = CancelToken(), asyncio.Event(), asyncio.Event()
    reasons: list[Any] = []

    async def slow(request: QuestionRequest) -> Any:
        begun.set()
        await gate.wait()
        assert request.signal is not None
        reasons.append(request.signal.reason)
        return [Answer(id="go", selected=("Yes",))]

    async with asking(Channel(slow)) as (run, service, agent):
        waiting = asyncio.create_task(refused(service, agent, GO, signal=token))
        await begun.wait()
        token.cancel("user")

        assert (await waiting).code == "ASK_ABORTED"
        gate.set()
        await run.breath()
        await run.breath()
        assert reasons == ["user"]


@aio
async def test_the_end_of_the_channel_ends_the_wait() -> None:
    deaf = Deaf()

    async with asking() as (_, service, agent):
        effect = service.serve(Channel(deaf.wait))
        waiting = asyncio.create_task(refused(service, agent, GO))
        await deaf.begun.wait()
        await effect()

        assert (await waiting).code == "ASK_ABORTED"
        assert not deaf.ended.is_set()
    assert deaf.ended.is_set()


@aio
async def test_an_asker_whose_task_goes_down_leaves_nothing_behind() -> None:
    deaf = Deaf()

    async with asking(Channel(deaf.wait)) as (_, service, agent):
        waiting = asyncio.create_task(service.ask(QuestionRequest(agent=agent, questions=(GO,))))
        await deaf.begun.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await deaf.ended.wait()


@aio
async def test_the_first_of_several_problems_is_told_in_the_order_of_the_codes() -> None:
    order = list(get_args(QuestionCode))
    async with asking() as (run, service, _):
        handle = await run.create()
        await handle.dispose()
        steps: list[dict[str, Any]] = [
            {"agent": handle.agent, "questions": (), "signal": cancelled()},
            {"agent": handle.agent, "questions": ()},
            {"agent": await run.agent(), "questions": (), "intent": PlanReview("x")},
            {"agent": await run.agent(), "questions": (GO, GO), "intent": PlanReview("x")},
            {"agent": await run.agent(), "questions": (GO,), "intent": PlanReview("x")},
            {"agent": await run.agent(), "questions": (GO,)},
        ]
        found = []
        for step in steps:
            with pytest.raises(UserQuestionError) as caught:
                await service.ask(QuestionRequest(**step))
            found.append(caught.value.code)

    assert found == [code for code in order if code in found]
    assert found[-1] == "NO_PROVIDER" and len(set(found)) == len(steps)
