"""The two HTTP clients: `HttpClient` for the APIs of providers, `FetchClient` for pages of strangers.

Both stream, and follow no redirects. There is one of the first in a process, with no read limit; the second
connects to an address that its caller has checked, past any proxy, and keeps no connection.

This is the only module that imports httpx, and it does so at the first request: loading it takes as long
as the rest of the start. The CA store is read in a thread, and only when something is fetched over TLS.
Proxies and authorities are taken from the usual variables (`proxy.py`, `authorities.py`). How long a silent
server is waited for is the caller's business (`dsh.llm.transport.watchdog`).
"""

import asyncio
import contextlib
import logging
import ssl
import sys
from collections.abc import AsyncIterable, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from dsh.capabilities.authorities import chosen, load_authorities
from dsh.capabilities.proxy import proxy_for, proxy_problem, shown_proxy
from dsh.errors import DshError
from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 30.0
"""One TCP or TLS handshake; generous, since a dead host is told from a slow one by nothing else."""
WRITE_TIMEOUT_S = 120.0
"""One write of a request body."""
MAX_CONNECTIONS = 100
KEPT_CONNECTIONS = 20
KEEP_ALIVE_S = 30.0
"""How long an idle connection is kept: over a usual tool call, shorter than most servers do."""
ENCODINGS = frozenset({"", "identity", "gzip", "deflate", "zstd"})
"""Content encodings that can be undone; none is asked for."""

UNUSABLE_SETTINGS = "INVALID_HTTP_SETTINGS"
"""Code of an `HttpError` that trying again cannot mend: the CA store or the proxy is set wrongly."""
UNUSABLE_URL = "INVALID_BASE_URL"
"""The same for a URL that looks like one and is none, such as `http://256.1.1.1`."""
MAX_SHOWN_PATH_CHARS = 200


class HttpError(DshError):
    """The exchange failed below HTTP: name look-up, connection, TLS, a reset, a broken frame."""


class HttpStream:
    """A response whose body is read piece by piece. Close it on every path."""

    __slots__ = ("_body", "_response", "_unknown_encoding", "headers", "status")

    def __init__(self, response: "httpx.Response", *, is_raw: bool = False) -> None:
        """
        Args:
            is_raw: the body comes as it was sent, with whatever encoding `content-encoding` names.
        """
        self._response = response
        encodings = {name.strip().lower() for name in response.headers.get("content-encoding", "").split(",")}
        self._unknown_encoding = "" if is_raw else ", ".join(sorted(encodings - ENCODINGS))
        plain = is_raw or encodings <= {"", "identity"}
        body = cast("AsyncIterable[bytes]", response.stream) if plain else response.aiter_bytes()
        self._body = aiter(body)  # past httpx's own chunker: it costs as much as the decoding of an event
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = {key.lower(): value for key, value in response.headers.items()}
        """Names in lower case; a repeated header is joined with commas."""

    async def read(self) -> bytes:
        """The next piece of the body, empty at its end.

        Raises:
            HttpError: the connection broke, or the body is in an encoding that nobody asked for.
        """
        if self._unknown_encoding:
            raise HttpError(
                f"the answer is encoded as {self._unknown_encoding[:40]!r}, which was not asked for",
                code="MALFORMED_RESPONSE",
                hint="check the proxies and gateways in between",
            )
        return await self._next()

    async def _next(self) -> bytes:
        try:
            async for piece in self._body:
                if piece:
                    return piece
            return b""
        except _errors() as error:
            raise _wrapped(error) from error

    async def read_all(self, limit: int, *, into: list[bytes] | None = None) -> bytes:
        """The rest of the body, at most `limit` bytes; what the server sends beyond is left unread.

        Args:
            into: where the pieces are collected, for a caller that may be interrupted.
        """
        pieces = [] if into is None else into
        size = 0
        while size < limit and (piece := await self.read()):
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)[:limit]

    async def aclose(self) -> None:
        """Give the connection back if the body was read to its end, else drop it.

        httpx nests generators, and one that is left half-way is closed by the collector, in a task of its
        own. On a dropped connection the next read fails, which ends them all here.
        """
        await self._response.aclose()
        with contextlib.suppress(Exception):
            while await self._next():
                continue


class HttpClient:
    """Opens responses. State: a pool of connections for each proxy in use, made with its first request."""

    _kept = KEPT_CONNECTIONS

    def __init__(self) -> None:
        self._clients: dict[str, httpx.AsyncClient] = {}
        """By the URL of the proxy that each goes through; empty for none."""
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._library: asyncio.Future[None] | None = None
        """Resolves once httpx is loaded."""
        self._authorities: asyncio.Future[None] | None = None

    async def open(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes = b""
    ) -> HttpStream:
        """Send a request and return once the response's headers are there.

        Raises:
            HttpError: no response came about.
        """
        self.warm(url)
        proxy = await self._warmed(url)
        import httpx

        client = self._clients.get(proxy) or self._start(proxy)
        try:
            request = client.build_request(method, url, headers=dict(headers), content=content)
        except (httpx.InvalidURL, ValueError) as error:
            raise HttpError(str(error), code=UNUSABLE_URL, hint="check the base URL") from error
        try:
            return HttpStream(await client.send(request, stream=True, follow_redirects=False))
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _wrapped(error, proxy if isinstance(error, httpx.TransportError) else "") from error

    def warm(self, url: str) -> None:
        """Begin to load, in a thread, what a request to this URL will need and nothing more."""
        if self._library is None:
            self._library = asyncio.ensure_future(asyncio.to_thread(_load_library))
        if self._authorities is None and url.lower().startswith("https:"):
            self._trust()

    def _trust(self) -> None:
        self._authorities = asyncio.ensure_future(asyncio.to_thread(load_authorities, self._tls))

    async def _warmed(self, url: str) -> str:
        """Wait for what was begun; the proxy that the request goes through."""
        if self._library is not None:
            await asyncio.wait((self._library,))
            self._library.result()
        proxy = self._proxy_for(url)
        if self._authorities is None and proxy.startswith("https:"):
            self._trust()
        if self._authorities is not None:
            await self._trusted(self._authorities)
        return proxy

    def _proxy_for(self, url: str) -> str:
        return proxy_for(url)

    async def _trusted(self, authorities: "asyncio.Future[None]") -> None:
        await asyncio.wait((authorities,))
        if (error := authorities.exception()) is not None:
            self._authorities = None
            from dsh.capabilities.http_failure import reason

            raise HttpError(
                f"the CA store cannot be read: {reason(error)}",
                code=UNUSABLE_SETTINGS,
                hint=f"check {chosen()[0] or 'the installation of certifi'}",
            ) from error

    def _start(self, proxy: str) -> "httpx.AsyncClient":
        import httpx

        client = httpx.AsyncClient(
            verify=self._tls,
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S, write=WRITE_TIMEOUT_S),
            limits=httpx.Limits(
                max_connections=MAX_CONNECTIONS,
                max_keepalive_connections=self._kept,
                keepalive_expiry=KEEP_ALIVE_S,
            ),
            proxy=self._way(proxy) if proxy else None,
            trust_env=False,
            follow_redirects=False,
        )
        self._clients[proxy] = client
        return client

    def _way(self, proxy: str) -> "httpx.Proxy":
        import httpx

        problem = proxy_problem(proxy)
        if not problem:
            try:
                return httpx.Proxy(proxy, ssl_context=self._tls if proxy.startswith("https:") else None)
            except (httpx.InvalidURL, ValueError):
                problem = "its URL names no host"
        raise HttpError(
            f"the proxy settings cannot be used: {problem}",
            code=UNUSABLE_SETTINGS,
            hint="check HTTP_PROXY, HTTPS_PROXY and ALL_PROXY",
        )

    async def aclose(self) -> None:
        """Drop every connection. The client can be used again."""
        clients, self._clients = self._clients, {}
        loading: tuple[asyncio.Future[Any] | None, ...] = (self._library, self._authorities)
        pending = [future for future in loading if future is not None and not future.done()]
        if pending:
            await asyncio.wait(pending)
        for client in clients.values():
            await client.aclose()


class FetchClient(HttpClient):
    """Asks servers that nobody vouches for. Every request has a connection of its own, and no proxy: what was
    checked is what is connected to, and two hosts at one address never share what TLS has proved of one."""

    _kept = 0

    async def open_at(self, address: str, url: str, *, headers: Mapping[str, str]) -> HttpStream:
        """GET the URL from this address, whatever its host resolves to; certificates are the host's.

        Args:
            address: an IP address; the port is the URL's.
            url: http or https, all of it ASCII.

        Raises:
            HttpError: no response came about.
        """
        self.warm(url)
        await self._warmed(url)
        import httpx

        client = self._clients.get("") or self._start("")
        try:
            named = httpx.URL(url)
            request = client.build_request(
                "GET",
                named.copy_with(host=address),
                headers={"host": named.netloc.decode("ascii"), **headers},
                extensions={"sni_hostname": named.host},
            )
        except (httpx.InvalidURL, ValueError) as error:
            raise HttpError(str(error), code=UNUSABLE_URL) from error
        try:
            return HttpStream(await client.send(request, stream=True, follow_redirects=False), is_raw=True)
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise _wrapped(error) from error

    def _proxy_for(self, url: str) -> str:
        return ""


HTTP: ServiceKey[HttpClient] = ServiceKey("http")


def host_of(url: str) -> str:
    """Scheme, host, port and path of a URL as it may be shown: without user, password and query."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https"):
        return "the configured base URL"  # where nothing can be told apart, anything may be a password
    host = f"[{host}]" if ":" in host else host
    path = parts.path if len(parts.path) <= MAX_SHOWN_PATH_CHARS else parts.path[:MAX_SHOWN_PATH_CHARS] + "…"
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{path}"


def _errors() -> tuple[type[Exception], ...]:
    import httpx

    return (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)


def _wrapped(error: Exception, proxy: str = "") -> HttpError:
    """The failure in the system's words, with the proxy that the request went through and what to do."""
    import httpx

    from dsh.capabilities.http_failure import reason, remedy

    match error:
        case httpx.ConnectTimeout():
            words, hint = f"no connection within {CONNECT_TIMEOUT_S:g} s", "check host, port and network"
        case httpx.WriteTimeout():
            words, hint = f"nothing could be sent for {WRITE_TIMEOUT_S:g} s", ""
        case httpx.ProxyError():
            words, hint = reason(error), "check user and password of the proxy" * ("407" in str(error))
        case _:
            words, hint = reason(error), remedy(error)
    return HttpError(f"{words} (through the proxy {shown_proxy(proxy)})" if proxy else words, hint=hint)


def _load_library() -> None:
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # its command line: click, rich, 30 ms
    try:
        import anyio._backends._asyncio  # noqa: F401  # else loaded by the first connection, on the loop
        import httpx  # noqa: F401
    finally:
        if sys.modules.get("httpx._main") is None:
            sys.modules.pop("httpx._main", None)
    import urllib.request  # noqa: F401  # for `proxy_for`

    logging.getLogger("httpx").setLevel(logging.WARNING)  # it would log whole URLs, which may hold a key
