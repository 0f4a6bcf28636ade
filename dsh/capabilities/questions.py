"""Questions to the person at the other end, and the one channel that can put them.

A front end that has a person registers itself as the channel. Without one every question is answered at once:
nobody is there (`NO_PROVIDER`). Nothing of it is logged: the tool that asks has its call and result.
"""

from collections.abc import Awaitable, Sequence
from typing import Literal, Protocol

import msgspec

from dsh.capabilities.agent import AgentRef
from dsh.errors import DshError
from dsh.kernel import CancelToken, Effect, ServiceKey

QuestionCode = Literal[
    "ASK_ABORTED",
    "CALLER_NOT_LIVE",
    "DELEGATED_CALLER",
    "EMPTY_QUESTIONS",
    "BAD_QUESTIONS",
    "BAD_INTENT",
    "NO_PROVIDER",
    "ASK_CANCELLED",
    "BAD_ANSWER",
    "DUPLICATE_PROVIDER",
]


class UserQuestionError(DshError):
    """A question that was not put or not answered; the codes are checked in the order of `QuestionCode`.

    `ASK_ABORTED`: the asker was cancelled. `CALLER_NOT_LIVE`: the asking agent has ended. `DELEGATED_CALLER`:
    another live agent owns it. `EMPTY_QUESTIONS`, `BAD_QUESTIONS`, `BAD_INTENT`: what is asked is malformed.
    `NO_PROVIDER`: nobody is there. `ASK_CANCELLED`: the person dismissed it. `BAD_ANSWER`: the channel
    failed, or answered something else. `DUPLICATE_PROVIDER`: there is a channel already.
    """

    def __init__(self, message: str, *, code: QuestionCode, hint: str = "") -> None:
        super().__init__(message, code=code, hint=hint)


class QuestionOption(msgspec.Struct, frozen=True, kw_only=True):
    """One answer that is offered."""

    label: str
    """Unique within its question; what an answer names."""
    description: str | None = None


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """One question. Without options the answer is free text."""

    id: str
    """Unique within the request; what an answer names."""
    question: str
    header: str | None = None
    """A word or two above it."""
    detail: str | None = None
    """Longer text that the question is about, Markdown."""
    options: tuple[QuestionOption, ...] = ()
    multi_select: bool = False
    """Several options may be chosen."""


class PlanReview(msgspec.Struct, frozen=True):
    """The one question is whether a plan is good: a display may show its detail as such."""

    approve: str
    """Label of the option that approves."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one question."""

    id: str
    selected: tuple[str, ...] = ()
    """Labels of options."""
    custom: str | None = None
    """What the person wrote instead, or besides."""


class QuestionRequest(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What one agent asks at once."""

    agent: AgentRef
    questions: tuple[Question, ...]
    intent: PlanReview | None = None
    signal: CancelToken | None = None


class QuestionProvider(Protocol):
    """A channel to a person."""

    def ask(self, request: QuestionRequest) -> Awaitable[Sequence[Answer] | None]:
        """One answer a question, in order; None when the person dismissed the request.

        `request.signal` says when nobody waits any more; what comes later is dropped.
        """


class UserQuestions(Protocol):
    """The question service of one composition (`spec/tools.md` §7)."""

    @property
    def has_provider(self) -> bool:
        """Whether anybody could be asked."""

    def serve(self, provider: QuestionProvider) -> Effect:
        """Be the channel until the effect is undone; requests under way then end as `ASK_ABORTED`.

        Raises:
            UserQuestionError: there is one already (`DUPLICATE_PROVIDER`).
        """

    async def ask(self, request: QuestionRequest) -> tuple[Answer, ...]:
        """Put the questions and wait for the answers, one each, in order.

        Raises:
            UserQuestionError: they were not put or not answered; its code says why.
        """


USER_QUESTIONS: ServiceKey[UserQuestions] = ServiceKey("userQuestions")
