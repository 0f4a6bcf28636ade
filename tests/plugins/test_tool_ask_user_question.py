"""Row `tool-ask-user-question`: what the model asks, what it reads, and a run in which nobody answers."""

import json
from typing import Any

import pytest

from dsh.agent.contract import Agent
from dsh.capabilities.questions import USER_QUESTIONS, Answer, QuestionRequest
from dsh.plugins import tool_ask_user_question, user_questions
from tests.agent.kit import Loop, calls, data_of, ends, loop, text
from tests.aio import aio

ROWS: list[Any] = [(user_questions, {}), (tool_ask_user_question, {})]
QUESTION = {
    "id": "go",
    "question": "Go on?",
    "header": "Next",
    "options": [{"label": "Yes"}, {"label": "No"}],
}


class Person:
    def __init__(self, *answers: Answer) -> None:
        self.answers = answers
        self.asked: list[QuestionRequest] = []

    async def ask(self, request: QuestionRequest) -> tuple[Answer, ...] | None:
        self.asked.append(request)
        return self.answers or None


def asks(*questions: Any) -> list[Any]:
    return calls(("c1", "ask_user_question", json.dumps({"questions": list(questions)})))


async def asked(run: Loop) -> tuple[Agent, str, Any]:
    """The agent after the turn, the text of the result, and its error."""
    agent = await run.agent()
    await run.prompt(agent, "go")
    [data] = data_of(agent.session, "tool/result")
    [block] = data["message"]["content"]
    return agent, block["content"][0]["text"], data.get("error")


@aio
async def test_where_nobody_is_there_the_call_fails_at_once_and_the_turn_goes_on() -> None:
    async with loop(asks(QUESTION), text("done alone"), rows=ROWS) as run:
        agent, told, error = await asked(run)

        assert error == {"name": "UserQuestionError", "code": "NO_PROVIDER"}
        assert told.startswith("Error: nobody is there to answer questions in this run; decide yourself")
        assert ends(agent.session) == [{"kind": "completed"}]


@aio
async def test_without_the_row_the_tool_is_unknown() -> None:
    async with loop(asks(QUESTION), text("bye"), rows=ROWS[:1]) as run:
        _, _, error = await asked(run)

        assert error["code"] == "UNKNOWN_TOOL"


@aio
async def test_the_answers_are_the_result() -> None:
    person = Person(Answer(id="go", selected=("Yes",)), Answer(id="n", custom="fünf"))
    async with loop(asks(QUESTION, {"id": "n", "question": "How many?"}), text("bye"), rows=ROWS) as run:
        run.ctx.use(USER_QUESTIONS).serve(person)

        _, told, error = await asked(run)

        assert error is None
        assert told == '{"answers":[{"id":"go","selected":["Yes"]},{"id":"n","selected":[],"custom":"fünf"}]}'
        [request] = person.asked
        assert [one.header for one in request.questions] == ["Next", None]
        assert [option.label for option in request.questions[0].options] == ["Yes", "No"]


@aio
async def test_a_dismissed_question_is_told_with_what_to_do() -> None:
    async with loop(asks(QUESTION), text("bye"), rows=ROWS) as run:
        run.ctx.use(USER_QUESTIONS).serve(Person())

        _, told, error = await asked(run)

        assert error["code"] == "ASK_CANCELLED"
        assert "do not ask the same again" in told


@pytest.mark.parametrize(
    ("questions", "code"),
    [
        ([], "EMPTY_QUESTIONS"),
        ([QUESTION, QUESTION], "BAD_QUESTIONS"),
        ([{"id": "x"}], "INVALID_ARGS"),
        ([{**QUESTION, "more": 1}], "INVALID_ARGS"),
        (["Go on?"], "INVALID_ARGS"),
    ],
)
@aio
async def test_what_is_wrong_with_the_questions_has_a_code(questions: list[Any], code: str) -> None:
    person = Person(Answer(id="go", selected=("Yes",)))
    async with loop(asks(*questions), text("bye"), rows=ROWS) as run:
        run.ctx.use(USER_QUESTIONS).serve(person)

        _, _, error = await asked(run)

        assert error["code"] == code
        assert person.asked == []


@aio
async def test_null_stands_for_what_is_left_out() -> None:
    person = Person(Answer(id="go", custom="yes"))
    question = {"id": "go", "question": "Go on?", "header": None, "options": None, "multiSelect": None}
    async with loop(asks(question), text("bye"), rows=ROWS) as run:
        run.ctx.use(USER_QUESTIONS).serve(person)

        _, told, error = await asked(run)

        assert error is None, told
        assert person.asked[0].questions[0].options == ()


@aio
async def test_a_turn_that_is_cancelled_while_the_person_thinks_ends_at_once() -> None:
    async with loop(asks(QUESTION), text("bye"), rows=ROWS) as run:
        agent = await run.agent()

        class Slow:
            async def ask(self, request: QuestionRequest) -> None:
                agent.cancel({"kind": "user"})
                assert request.signal is not None
                await request.signal.sleep(3600)

        run.ctx.use(USER_QUESTIONS).serve(Slow())
        await run.prompt(agent, "go")

        [data] = data_of(agent.session, "tool/result")
        assert data["error"]["code"] in ("ASK_ABORTED", "ABORTED")
        assert ends(agent.session) == [{"kind": "aborted", "reason": {"kind": "user"}}]
