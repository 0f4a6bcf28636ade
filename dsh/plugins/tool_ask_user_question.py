"""Row `tool-ask-user-question`: the tool `ask_user_question`, by which a model asks the person it works for.

In no bundle. Where nobody can be asked the call fails at once and says so, so that the model goes on alone.
"""

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from dsh.capabilities.questions import (
    USER_QUESTIONS,
    Answer,
    Question,
    QuestionOption,
    QuestionRequest,
    UserQuestionError,
    UserQuestions,
)
from dsh.kernel import Context
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.execution import ToolExecution
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool

inject = [TOOLS, USER_QUESTIONS]
provide = ()

NAME = "ask_user_question"
ADVICE: Mapping[str, str] = {
    "NO_PROVIDER": "decide yourself with what you know, go on, and name what you assumed in your answer",
    "ASK_CANCELLED": "go on without an answer as far as you can, and do not ask the same again",
}
"""What the model can do about it, by code."""

PARAMETERS: dict[str, dict[str, Any]] = {
    "questions": {
        "type": "array",
        "description": "The questions, asked at once.",
        "required": True,
        "items": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "id": {
                    "type": "string",
                    "description": "Names the question in the answer; different for each.",
                    "required": True,
                },
                "question": {"type": "string", "description": "The question, in full.", "required": True},
                "header": {"type": "string", "description": "A word or two above the question."},
                "options": {
                    "type": "array",
                    "description": "What to choose from; the person may write something else instead.",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "properties": {
                            "label": {"type": "string", "description": "The answer.", "required": True},
                            "description": {"type": "string", "description": "What it means."},
                        },
                    },
                },
                "multiSelect": {"type": "boolean", "description": "Several options may be chosen."},
            },
        },
    },
}
ANSWERS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "answers": {
            "type": "array",
            "required": True,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "id": {"type": "string", "required": True},
                    "selected": {"type": "array", "required": True, "items": {"type": "string"}},
                    "custom": {"type": "string"},
                },
            },
        }
    },
}


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The row has no options."""


def ask_tool(service: UserQuestions) -> ToolDefinition:
    """The tool over one question service."""

    async def ask(args: Args, execution: ToolExecution) -> dict[str, Any]:
        if execution.agent is None:
            raise UserQuestionError("only an agent can ask a person", code="CALLER_NOT_LIVE")
        questions = tuple(_question(found) for found in args["questions"])
        try:
            answers = await service.ask(
                QuestionRequest(agent=execution.agent, questions=questions, signal=execution.signal)
            )
        except UserQuestionError as error:
            advice = ADVICE.get(error.code)
            if advice is not None:
                error.message = f"{error.message}; {advice}"
            raise
        return {"answers": [_told(answer) for answer in answers]}

    return typed_tool(
        name=NAME,
        description=(
            "Ask the person you work for. Use it only for a decision that is theirs and that the task, the "
            "files and the tools do not settle. It fails at once where nobody is there to answer."
        ),
        parameters=PARAMETERS,
        output=ToolOutput(schema=ANSWERS, render=lambda args, value: _json(value)),
        execute=ask,
        timeout_ms=None,
    )


def _question(found: Mapping[str, Any]) -> Question:
    return Question(
        id=found["id"],
        question=found["question"],
        header=found.get("header"),
        options=tuple(
            QuestionOption(label=option["label"], description=option.get("description"))
            for option in found.get("options") or ()
        ),
        multi_select=found.get("multiSelect") is True,
    )


def _told(answer: Answer) -> dict[str, Any]:
    told: dict[str, Any] = {"id": answer.id, "selected": list(answer.selected)}
    if answer.custom is not None:
        told["custom"] = answer.custom
    return told


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def apply(ctx: Context, config: Config) -> None:
    ctx.use(TOOLS).register(ask_tool(ctx.use(USER_QUESTIONS)))
