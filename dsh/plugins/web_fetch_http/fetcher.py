"""One page, from its URL to its text: check, connect to what was checked, follow, read, decode."""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from dsh.capabilities.http import FetchClient, HttpError, HttpStream
from dsh.capabilities.http_failure import reason
from dsh.capabilities.web import WebError, WebPage
from dsh.kernel import CancelToken
from dsh.kernel.cancel import Cancelled
from dsh.kernel.task import retrieve
from dsh.plugins.web_fetch_http.address import AllowedHosts, is_local_name, is_public, parsed
from dsh.plugins.web_fetch_http.body import Unpacker, form_of, shortened, text_of
from dsh.plugins.web_fetch_http.target import Target, read_url

if TYPE_CHECKING:
    from dsh.plugins.web_fetch_http import Config

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The addresses of a host, the best first; raises `OSError`."""
ACCEPT = "text/html,text/markdown,text/plain,application/xhtml+xml,application/json,application/xml,*/*;q=0.1"
REDIRECTS = frozenset({301, 302, 303, 307, 308})
MAX_TRIED = 4
"""Addresses of one host that are tried before it counts as unreachable."""


async def resolve(host: str, port: int) -> Sequence[str]:
    """What the system says."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Fetcher:
    """Fetches pages. State: the client."""

    def __init__(self, config: "Config", resolve: Resolve = resolve) -> None:
        self._config = config
        self._resolve = resolve
        self._allowed = AllowedHosts(config.allowed_hosts)
        self._client = FetchClient()

    async def close(self) -> None:
        await self._client.aclose()

    async def fetch(self, url: str, signal: CancelToken) -> WebPage:
        """The page, within the limits.

        Raises:
            WebError: see its codes.
        """
        timeout_s = self._config.timeout_ms / 1000
        work = asyncio.ensure_future(self._fetch(url))
        work.add_done_callback(retrieve)
        try:
            async with asyncio.timeout(timeout_s) as limit:
                return await signal.race(work)
        except TimeoutError:
            if not limit.expired():
                raise
            raise WebError(
                "WEB_FETCH_TIMEOUT", f"the page did not come within {self._config.timeout_ms} ms"
            ) from None
        except Cancelled:
            raise WebError("WEB_ABORTED", "the fetch was cancelled") from None
        finally:
            work.cancel()  # a page that is not wanted any more is not read on
            await asyncio.wait((work,))

    async def _fetch(self, url: str) -> WebPage:
        target = read_url(url, self._config.max_url_length)
        for _ in range(self._config.max_redirects + 1):
            stream = await self._opened(target)
            try:
                location = stream.headers.get("location")
                if stream.status not in REDIRECTS or not location:
                    return await self._page(target, stream)
            finally:
                await stream.aclose()
            target = self._followed(target, location)
        raise WebError("WEB_REDIRECT_BLOCKED", f"more than {self._config.max_redirects} redirects")

    def _followed(self, target: Target, location: str) -> Target:
        following = target.redirected(location, self._config.max_url_length)
        if not target.may_lead_to(following):
            raise WebError(
                "WEB_REDIRECT_BLOCKED",
                f"{target.shown} redirects to {following.shown}, which is another site; "
                "fetch that URL if you want it",
            )
        return following

    async def _opened(self, target: Target) -> HttpStream:
        """The answer of the first address that can be reached, all of them checked before."""
        headers = {
            "accept": ACCEPT,
            "accept-encoding": "gzip, deflate",
            "user-agent": self._config.user_agent,
        }
        addresses = await self.addresses(target)
        failure: HttpError | None = None
        for address in addresses[:MAX_TRIED]:
            try:
                return await self._client.open_at(address, target.url, headers=headers)
            except HttpError as error:
                failure = failure or error
        assert failure is not None
        raise WebError(
            "WEB_PROVIDER_ERROR", f"{target.shown} cannot be fetched: {failure.message}", hint=failure.hint
        ) from failure

    async def addresses(self, target: Target) -> list[str]:
        """Where the target may be reached.

        Raises:
            WebError: `WEB_BLOCKED_URL`, it may not be; `WEB_PROVIDER_ERROR`, its host is not known.
        """
        host, allowed = target.host, self._allowed
        if target.port not in self._config.allowed_ports:
            known = ", ".join(map(str, sorted(self._config.allowed_ports)))
            raise _blocked(target, f"port {target.port} is none of {known}")
        is_allowed = allowed.has_name(host)
        if is_local_name(host) and not is_allowed:
            raise _blocked(target, f"{host} is this machine")
        try:
            found = [host] if target.address is not None else await self._resolve(host, target.port)
        except (OSError, UnicodeError) as error:
            raise WebError("WEB_PROVIDER_ERROR", f"the host {host} is not known: {reason(error)}") from None
        if not found:
            raise WebError("WEB_PROVIDER_ERROR", f"the host {host} has no address")
        checked = []
        for text in found:
            address = parsed(text)
            if address is None:
                raise _blocked(target, f"{text!r} is no address")
            if not (is_allowed or is_public(address) or allowed.has_address(address)):
                raise _blocked(target, f"{_named(host, address)} is not on the public Internet")
            checked.append(text)
        return checked

    async def _page(self, target: Target, stream: HttpStream) -> WebPage:
        form, config = form_of(stream.headers), self._config
        declared = stream.headers.get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared[:20]) > config.max_response_bytes:
            raise WebError(
                "WEB_FETCH_TOO_LARGE",
                f"{target.shown} has {declared[:20]} bytes, at most {config.max_response_bytes} are read",
            )
        body, is_cut = await self._body(stream)
        text, is_short = shortened(text_of(body, form, is_cut=is_cut), form.kind, config.max_body_chars)
        return WebPage(
            url=target.url,
            status_code=stream.status,
            kind=form.kind,
            content=text,
            truncated=is_cut or is_short,
        )

    async def _body(self, stream: HttpStream) -> tuple[bytes, bool]:
        """The body, unpacked, and whether it goes on."""
        room = self._config.max_response_bytes + 1
        unpacker, pieces = Unpacker(stream.headers.get("content-encoding", "")), []
        try:
            while room and (piece := await stream.read()):
                pieces.append(unpacker.unpacked(piece, room))
                room -= len(pieces[-1])
        except HttpError as error:
            raise WebError(
                "WEB_PROVIDER_ERROR", f"the page broke off: {error.message}", hint=error.hint
            ) from error
        return b"".join(pieces)[: self._config.max_response_bytes], not room


def _named(host: str, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    return host if str(address) == host else f"{host} is {address}, which"


def _blocked(target: Target, problem: str) -> WebError:
    return WebError(
        "WEB_BLOCKED_URL",
        f"{target.shown} may not be fetched: {problem}",
        hint="allowedHosts and allowedPorts of the row web-fetch-http let more through",
    )
