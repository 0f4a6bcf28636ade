"""Row `web-fetch-http`: fetches pages over http and https, but not from inside the user's own network.

A host is resolved here, and unless every one of its addresses is on the public Internet nothing is sent. The
connection goes to an address that was checked, so that a name server that changes its mind in between changes
nothing, and past every proxy. Redirects stay with the host and are checked like the first request.
"""

from typing import TYPE_CHECKING, Annotated

import msgspec

from dsh.capabilities.bounds import Amount, NonEmpty, TimerMs
from dsh.capabilities.web import WEB, WebPage
from dsh.kernel import CancelToken, Context

if TYPE_CHECKING:
    from dsh.plugins.web_fetch_http.fetcher import Fetcher

inject = [WEB]
provide = ()

Port = Annotated[int, msgspec.Meta(ge=1, le=65_535)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    max_url_length: Amount = 2048
    """Longest URL, in characters; redirects too."""
    max_response_bytes: Amount = 5_000_000
    """How much of a page is read, unpacked. One that says that it is larger is refused, another is cut."""
    max_body_chars: Amount = 100_000
    """How much of its text is handed on, in characters."""
    timeout_ms: TimerMs = 30_000
    """How long one page may take, redirects included."""
    max_redirects: Annotated[int, msgspec.Meta(ge=0, le=20)] = 5
    """How many redirects are followed, all of them on the same host."""
    allowed_hosts: list[NonEmpty] = []
    """What may be reached although it is not public: names (`wiki.corp`), all names below one (`*.corp`),
    addresses and networks (`10.1.0.0/16`)."""
    allowed_ports: list[Port] = msgspec.field(default_factory=lambda: [80, 443])
    """Ports that may be asked."""
    user_agent: NonEmpty = "dsh"
    """What the requests say who they are."""

    def __post_init__(self) -> None:
        from dsh.plugins.web_fetch_http.address import AllowedHosts

        AllowedHosts(self.allowed_hosts)
        if not (self.user_agent.isascii() and self.user_agent.isprintable()):
            raise ValueError("userAgent takes printable ASCII characters only")


class HttpFetchProvider:
    """Implements `dsh.capabilities.web.FetchProvider`. State: the fetcher, made with the first page."""

    id = "http"

    def __init__(self, config: Config) -> None:
        self._config = config
        self._fetcher: Fetcher | None = None

    def problem(self) -> str | None:
        return None

    async def fetch(self, url: str, signal: CancelToken) -> WebPage:
        if self._fetcher is None:
            from dsh.plugins.web_fetch_http.fetcher import Fetcher

            self._fetcher = Fetcher(self._config)
        return await self._fetcher.fetch(url, signal)

    async def close(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()


def apply(ctx: Context, config: Config) -> None:
    provider = HttpFetchProvider(config)
    ctx.effect(lambda: provider.close, "web pages")
    ctx.use(WEB).register_fetch(provider)
