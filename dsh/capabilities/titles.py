"""The titles of live sessions as a service: a fallback from the prompt, a provider's, or a person's own.

The log is the truth: `session/title` events, the last one counts (`spec/persistence.md` §10).
"""

from typing import Literal, Protocol, TypeAlias

import msgspec

from dsh.errors import DshError
from dsh.kernel import CancelToken, Effect, ServiceKey
from dsh.session.log import Session


class SessionTitleError(DshError):
    """A title cannot be had or written. Codes: `SESSION_TITLE_…`."""


class SessionTitleInvalidError(SessionTitleError):
    """Nothing of a title can be shown, or a provider's answer is none. Code `SESSION_TITLE_INVALID`."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            problem, code="SESSION_TITLE_INVALID", hint="a title has at least one visible character"
        )


Automatic: TypeAlias = Literal["first-prompt", "all-prompts"]
"""When a provider is asked by itself: once, for the first prompt of a session without a parent and without a
title; or anew for every prompt."""


class Route(msgspec.Struct, frozen=True):
    """A provider and one of its models."""

    provider: str
    model: str


class TitlePrompt(msgspec.Struct, frozen=True):
    """A message of the person that a title may be made of."""

    seq: int
    text: str


class TitleRequest(msgspec.Struct, frozen=True, eq=False):
    """What a provider is asked."""

    session: Session
    prompts: tuple[TitlePrompt, ...]
    """In the order of the log, at least one."""
    route: Route | None
    """What the session itself runs on; None where it has not asked a model yet."""
    signal: CancelToken
    """Cancelled when the answer is not wanted any more."""


class ProvidedTitle(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider answers."""

    title: str
    message_seqs: tuple[int, ...]
    """Of the prompts it was made of: at least one, in order."""
    model: Route | None = None
    """The model that wrote it, if one did."""


class TitleProvider(Protocol):
    """Makes titles. A failure costs the title and nothing else."""

    @property
    def id(self) -> str:
        """Its name in the log."""

    @property
    def automatic(self) -> Automatic: ...

    async def generate(self, request: TitleRequest) -> ProvidedTitle:
        """A title for these prompts. What it raises is told in one warning."""


class Titles(Protocol):
    """The titles of live sessions."""

    def register(self, provider: TitleProvider) -> Effect:
        """Ask this provider, for as long as the caller lives.

        Raises:
            SessionTitleError: there is one already; code `SESSION_TITLE_PROVIDER_EXISTS`.
        """

    def title(self, session: Session) -> str | None:
        """The title now."""

    def rename(self, session: Session, title: str) -> str:
        """Write the person's own title and answer it as it was written. It stays until `refresh`.

        Not from an observer of the session's log.

        Raises:
            SessionTitleInvalidError: nothing of it can be shown.
            SessionError: the session is not live, or its log takes no event now.
        """

    async def refresh(self, session: Session) -> str | None:
        """Make the title anew from all prompts, also over a person's own: by the provider, else the fallback.

        Answers the title; None where there is no prompt to make it of, or newer work took its place.

        Raises:
            Exception: what the provider raised; the title is as it was.
        """


TITLES: ServiceKey[Titles] = ServiceKey("sessionTitle")
