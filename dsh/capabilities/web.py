"""The web as a service: who can search it and who can fetch a page, and what comes back.

Provider rows register themselves; the service chooses one for each use, and tools ask the service
(`spec/capabilities-more.md` §10). What comes back was written by strangers: it is valid Unicode, and nothing
else about it is known.
"""

from collections.abc import Awaitable
from typing import Literal, Protocol

import msgspec

from dsh.errors import DshError
from dsh.kernel import CancelToken, Effect, Event, ServiceKey
from dsh.session.log import Session

WebErrorCode = Literal[
    "WEB_ABORTED",
    "WEB_BLOCKED_URL",
    "WEB_DUPLICATE_PROVIDER",
    "WEB_FETCH_TIMEOUT",
    "WEB_FETCH_TOO_LARGE",
    "WEB_INVALID_URL",
    "WEB_PROVIDER_AMBIGUOUS",
    "WEB_PROVIDER_CONFIGURED_MISSING",
    "WEB_PROVIDER_CONFIGURED_UNAVAILABLE",
    "WEB_PROVIDER_CREDENTIAL_MISSING",
    "WEB_PROVIDER_ERROR",
    "WEB_PROVIDER_UNAVAILABLE",
    "WEB_REDIRECT_BLOCKED",
    "WEB_UNSUPPORTED_CONTENT_TYPE",
]


class WebError(DshError):
    """A search or a fetch that came to nothing, or a provider that cannot be registered."""

    def __init__(self, code: WebErrorCode, message: str, *, hint: str = "") -> None:
        super().__init__(message, code=code, hint=hint)


class WebQuery(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One search."""

    text: str
    """As the model wrote it."""
    max_results: int
    signal: CancelToken
    session: Session | None = None
    """The session that asks: where the request and what it used are logged."""


class WebSource(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One result of a search."""

    url: str
    title: str | None = None
    snippet: str | None = None
    published_at: str | None = None
    """As the provider writes it: a date, or words such as `2 days ago`."""


class WebFindings(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found, the best first."""

    sources: tuple[WebSource, ...]
    content: str | None = None
    """The provider's own answer, where it makes one."""
    truncated: bool = False
    """There was more than was asked for."""


class WebPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page that was fetched."""

    url: str
    """Where it was in the end, redirects followed."""
    status_code: int
    kind: Literal["html", "text"]
    content: str
    truncated: bool = False
    """The page goes on."""


class SearchProvider(Protocol):
    """Searches the web for the service."""

    @property
    def id(self) -> str: ...

    def problem(self) -> str | None:
        """Why it cannot search now, such as a missing key, in words for a message; None where it can."""

    async def search(self, query: WebQuery) -> WebFindings:
        """
        Raises:
            WebError: `WEB_PROVIDER_ERROR`, `WEB_PROVIDER_CREDENTIAL_MISSING`, `WEB_ABORTED`.
        """


class FetchProvider(Protocol):
    """Fetches pages for the service."""

    @property
    def id(self) -> str: ...

    def problem(self) -> str | None:
        """Why it cannot fetch now; None where it can."""

    async def fetch(self, url: str, signal: CancelToken) -> WebPage:
        """
        Raises:
            WebError: see its codes.
        """


class Web(Protocol):
    """Chooses a provider: the configured one, else the only one that is available."""

    def register_search(self, provider: SearchProvider) -> Effect:
        """Offer a provider to all, until the effect is undone.

        Raises:
            WebError: `WEB_DUPLICATE_PROVIDER`.
        """

    def register_fetch(self, provider: FetchProvider) -> Effect:
        """The same for pages."""

    def notify(self) -> None:
        """Tell that a provider's `problem` may have changed."""

    def can_search(self) -> bool:
        """Whether there is a provider that would be asked now."""

    def can_fetch(self) -> bool: ...

    def search(self, query: WebQuery) -> Awaitable[WebFindings]:
        """Ask the chosen provider; at most `max_results` sources come back.

        Raises:
            WebError: no provider can be chosen, or it failed.
        """

    def fetch(self, url: str, signal: CancelToken) -> Awaitable[WebPage]:
        """The same for a page."""


class WebChanged(msgspec.Struct, frozen=True):
    """Payload of `web/change`: another provider may be chosen from now on, or none."""


WEB: ServiceKey[Web] = ServiceKey("web")
WEB_CHANGE: Event[WebChanged, None] = Event("web/change", "emit", contained=True)
