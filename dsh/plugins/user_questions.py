"""Row `user-questions`: puts questions to the person at the other end, where a front end has one.

It holds the one channel that a front end opens, checks who asks what, and answers at once where there is no
channel: a run with nobody to ask never waits (`spec/tools.md` §7).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from dsh.agent.liveness import is_live
from dsh.agent.registry import AGENTS
from dsh.capabilities.agent import AgentRef
from dsh.capabilities.questions import (
    USER_QUESTIONS,
    Answer,
    PlanReview,
    Question,
    QuestionProvider,
    QuestionRequest,
    UserQuestionError,
)
from dsh.kernel import Cancelled, CancelToken, Context, Effect, Service
from dsh.kernel.foreign import contained, told
from dsh.tools.leftover import leave_with
from dsh.unicode import valid

provide = [USER_QUESTIONS]

NOBODY = "nobody is there to answer questions in this run"
WHO = "the channel for questions"


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The row has no options."""


class _Channel:
    """A provider, and what ends when it goes."""

    def __init__(self, provider: QuestionProvider) -> None:
        self.provider = provider
        self.gone = CancelToken()


class QuestionService(Service):
    """Implements `dsh.capabilities.questions.UserQuestions`. State: the channel, while there is one."""

    provide = USER_QUESTIONS

    def __init__(self, ctx: Context) -> None:
        self._channels: list[_Channel] = []
        """None or one. A list, because each caller has a view of its own on the service."""
        super().__init__(ctx)

    @property
    def has_provider(self) -> bool:
        return bool(self._channels)

    def serve(self, provider: QuestionProvider) -> Effect:
        if self._channels:
            raise UserQuestionError("there is a channel for questions already", code="DUPLICATE_PROVIDER")
        channel = _Channel(provider)

        def setup() -> Callable[[], None]:
            self._channels.append(channel)

            def undo() -> None:
                self._channels.remove(channel)
                channel.gone.cancel("the channel is gone")

            return undo

        return self.ctx.effect(setup, "channel for questions")

    async def ask(self, request: QuestionRequest) -> tuple[Answer, ...]:
        if request.signal is not None and request.signal.cancelled:
            raise _aborted()
        self._check_caller(request.agent)
        _check_questions(request.questions)
        _check_intent(request)
        if not self._channels:
            raise UserQuestionError(NOBODY, code="NO_PROVIDER")
        answer = await self._wait(self._channels[0], request)
        if answer is None:
            raise UserQuestionError("the person dismissed the question", code="ASK_CANCELLED")
        return _checked(request.questions, answer)

    async def _wait(self, channel: _Channel, request: QuestionRequest) -> object:
        """What the channel answers, as long as somebody waits for it and it is there."""
        signal = CancelToken.any_of(request.signal, channel.gone)
        asked = msgspec.structs.replace(request, signal=signal)
        answering = asyncio.ensure_future(_answer(channel.provider, asked))
        try:
            answer = await signal.race(answering)
        except (Cancelled, UserQuestionError):
            if not signal.cancelled:
                raise
        except asyncio.CancelledError:
            answering.cancel()
            raise
        finally:
            signal.detach()
        if not signal.cancelled:
            return answer
        if not answering.done():
            leave_with(self.owner_ctx, answering, WHO)
        raise _aborted()

    def _check_caller(self, agent: AgentRef) -> None:
        if not is_live(self.owner_ctx, agent):
            raise UserQuestionError(
                f"agent {agent.id} has ended, it cannot ask anything", code="CALLER_NOT_LIVE"
            )
        agents = self.owner_ctx.get(AGENTS)
        if agents is not None and all(root is not agent for root in agents.roots()):
            raise UserQuestionError(
                "another live agent owns the asking one, so it has no person to ask; put what is open "
                "into the final result instead",
                code="DELEGATED_CALLER",
            )


async def _answer(provider: QuestionProvider, request: QuestionRequest) -> object:
    try:
        return await provider.ask(request)
    except BaseException as raised:
        error = contained(raised, WHO)
        if isinstance(error, UserQuestionError):
            raise error from None
        raise UserQuestionError(f"{WHO} failed: {told(error)}", code="BAD_ANSWER") from error


def _check_questions(questions: Sequence[Question]) -> None:
    if not questions:
        raise UserQuestionError("there is no question", code="EMPTY_QUESTIONS")
    problem: str | None = None
    if not _are_unique([one.id for one in questions]):
        problem = "two questions have the same id"
    for one in questions:
        labels = [option.label for option in one.options]
        if not one.question.strip():
            problem = f"question {one.id!r:.60} has no text"
        elif not all(label.strip() for label in labels) or not _are_unique(labels):
            problem = f"question {one.id!r:.60} has an option without a label, or two with the same"
    if problem is not None:
        raise UserQuestionError(problem, code="BAD_QUESTIONS")


def _check_intent(request: QuestionRequest) -> None:
    intent: object = request.intent
    if intent is None:
        return
    offered = [option.label for option in request.questions[0].options]
    if not isinstance(intent, PlanReview) or len(request.questions) > 1 or intent.approve not in offered:
        raise UserQuestionError(
            "a plan review is one question that offers the option that approves", code="BAD_INTENT"
        )


def _checked(questions: Sequence[Question], answers: object) -> tuple[Answer, ...]:
    """The answers, if they are one each, in order, and choose from what was offered."""
    if not isinstance(answers, list | tuple) or len(answers) != len(questions):
        raise _bad("the answers are not as many as the questions")
    return tuple(_fitting(question, found) for question, found in zip(questions, answers, strict=True))


def _fitting(question: Question, found: object) -> Answer:
    where = f"question {question.id!r:.60}"
    if not isinstance(found, Answer) or found.id != question.id:
        raise _bad(f"{where} got the answer to another one, or none")
    parts: tuple[Any, Any] = (found.selected, found.custom)
    selected, custom = parts
    if not isinstance(selected, list | tuple) or not isinstance(custom, str | None):
        raise _bad(f"{where} got an answer without a list of labels, or with a custom part that is no text")
    offered = [option.label for option in question.options]
    if any(label not in offered for label in selected) or not _are_unique(list(selected)):
        raise _bad(f"{where} was answered with an option that it does not offer, or with one twice")
    if len(selected) > 1 and not question.multi_select:
        raise _bad(f"{where} was answered with several options, it takes one")
    if not selected and not (custom or "").strip():
        raise _bad(f"{where} got an empty answer")
    return Answer(id=found.id, selected=tuple(selected), custom=None if custom is None else valid(custom))


def _are_unique(words: Sequence[object]) -> bool:
    return len(set(words)) == len(words)


def _aborted() -> UserQuestionError:
    return UserQuestionError("nobody waits for the answer any more", code="ASK_ABORTED")


def _bad(problem: str) -> UserQuestionError:
    return UserQuestionError(f"{WHO} answered wrongly: {problem}", code="BAD_ANSWER")


def apply(ctx: Context, config: Config) -> None:
    QuestionService(ctx)
