"""The HTTP client that model adapters share: one for a process, streaming, no redirects, no read limit.

This is the only module that imports httpx, and it does so at the first request: loading it takes as long
as the rest of the start. The CA store is read in a thread, and only when something is fetched over TLS.
Proxies and CA files are taken from the usual variables (`HTTPS_PROXY`, `NO_PROXY`, `SSL_CERT_FILE`,
`SSL_CERT_DIR`). How long a silent server is waited for is the
caller's business (`dsh.llm.transport.watchdog`).
"""

import asyncio
import contextlib
import os
import socket
import ssl
import sys
from collections.abc import AsyncIterable, Mapping
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from dsh.errors import DshError
from dsh.kernel import ServiceKey

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 30.0
"""One TCP or TLS handshake; generous, since a dead host is told from a slow one by nothing else."""
WRITE_TIMEOUT_S = 120.0
"""One write of a request body."""
MAX_CONNECTIONS = 100

UNUSABLE_SETTINGS = "INVALID_HTTP_SETTINGS"
"""Code of an `HttpError` that trying again cannot mend: the CA store or the proxy is set wrongly."""

_REMEDIES: tuple[tuple[type[OSError], str], ...] = (
    (ssl.SSLCertVerificationError, "name the authority that signed it in SSL_CERT_FILE"),
    (socket.gaierror, "check the host name and the network"),
    (ConnectionRefusedError, "check host and port"),
)


class HttpError(DshError):
    """The exchange failed below HTTP: name look-up, connection, TLS, a reset, a broken frame."""


class HttpStream:
    """A response whose body is read piece by piece. Close it on every path."""

    __slots__ = ("_body", "_response", "headers", "status")

    def __init__(self, response: "httpx.Response") -> None:
        self._response = response
        plain = response.headers.get("content-encoding", "identity").strip().lower() in ("", "identity")
        body = cast("AsyncIterable[bytes]", response.stream) if plain else response.aiter_bytes()
        self._body = aiter(body)  # past httpx's own chunker: it costs as much as the decoding of an event
        self.status: int = response.status_code
        self.headers: Mapping[str, str] = {key.lower(): value for key, value in response.headers.items()}
        """Names in lower case; a repeated header is joined with commas."""

    async def read(self) -> bytes:
        """The next piece of the body, empty at its end.

        Raises:
            HttpError: the connection broke.
        """
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
            while await self.read():
                continue


class HttpClient:
    """Opens responses. State: the connection pool, made with the first request."""

    def __init__(self) -> None:
        self._client: httpx.AsyncClient | None = None
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._library: asyncio.Future[bool] | None = None
        """Resolves once httpx is loaded; to whether a proxy is reached over TLS."""
        self._authorities: asyncio.Future[None] | None = None

    async def open(
        self, method: str, url: str, *, headers: Mapping[str, str], content: bytes = b""
    ) -> HttpStream:
        """Send a request and return once the response's headers are there.

        Raises:
            HttpError: no response came about.
        """
        self.warm(url)
        await self._warmed()
        import httpx

        client = self._client or self._start()
        try:
            request = client.build_request(method, url, headers=dict(headers), content=content)
            return HttpStream(await client.send(request, stream=True, follow_redirects=False))
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            raise _wrapped(error, url if isinstance(error, httpx.TransportError) else "") from error

    def warm(self, url: str) -> None:
        """Begin to load, in a thread, what a request to this URL will need and nothing more."""
        if self._library is None:
            self._library = asyncio.ensure_future(asyncio.to_thread(_load_library))
        if self._authorities is None and url.lower().startswith("https:"):
            self._trust()

    def _trust(self) -> None:
        self._authorities = asyncio.ensure_future(asyncio.to_thread(_load_authorities, self._tls))

    async def _warmed(self) -> None:
        if self._library is not None:
            await asyncio.wait((self._library,))
            if self._library.result() and self._authorities is None:
                self._trust()
        if self._authorities is None:
            return
        await asyncio.wait((self._authorities,))
        if (error := self._authorities.exception()) is not None:
            self._authorities = None
            raise HttpError(
                f"the CA store cannot be read: {_reason(error)}",
                code=UNUSABLE_SETTINGS,
                hint="check SSL_CERT_FILE and SSL_CERT_DIR",
            ) from error

    def _start(self) -> "httpx.AsyncClient":
        import httpx

        try:
            self._client = httpx.AsyncClient(
                verify=self._tls,
                timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S, write=WRITE_TIMEOUT_S),
                limits=httpx.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=20),
                follow_redirects=False,
            )
        except (ValueError, ImportError) as error:
            raise HttpError(
                f"the proxy settings cannot be used: {error}",
                code=UNUSABLE_SETTINGS,
                hint="check HTTP_PROXY, HTTPS_PROXY and ALL_PROXY",
            ) from error
        return self._client

    async def aclose(self) -> None:
        """Drop every connection. The client can be used again."""
        client, self._client = self._client, None
        loading: tuple[asyncio.Future[Any] | None, ...] = (self._library, self._authorities)
        pending = [future for future in loading if future is not None and not future.done()]
        if pending:
            await asyncio.wait(pending)
        if client is not None:
            await client.aclose()


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
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"


def _errors() -> tuple[type[Exception], ...]:
    import httpx

    return (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError)


def _wrapped(error: Exception, url: str = "") -> HttpError:
    """The failure in the system's words, with the proxy that the request went through and what to do."""
    reason = _reason(error)
    if proxy := _proxy_of(url):
        reason += f" (through the proxy {proxy})"
    found = _system_error(error)
    hint = next((words for kind, words in _REMEDIES if isinstance(found, kind)), "")
    return HttpError(reason, hint=hint)


def _reason(error: BaseException) -> str:
    found = _system_error(error)
    if isinstance(found, ssl.SSLCertVerificationError):
        return f"its certificate cannot be trusted: {found.verify_message}"
    if isinstance(found, ConnectionError) and found.errno:
        return os.strerror(found.errno)  # asyncio puts another text in its place
    if found is not None and found.strerror:
        return found.strerror
    return str(error) or type(error).__name__


def _system_error(error: BaseException) -> OSError | None:
    """The error of the operating system at the bottom: the libraries' own texts say less."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, OSError):
        at = at.exceptions[0] if isinstance(at, BaseExceptionGroup) else at.__cause__ or at.__context__
    if isinstance(at, OSError) and at.errno is None and (below := at.__cause__ or at.__context__):
        return _system_error(below) or at
    return at


def _proxy_of(url: str) -> str:
    """Host and port of the proxy that requests to this URL go through; empty where there is none."""
    from urllib.request import getproxies, proxy_bypass

    scheme, host = urlsplit(url)[:2] if url else ("", "")
    proxies = getproxies() if host else {}
    proxy = proxies.get(scheme) or proxies.get("all") or ""
    if not proxy or proxy_bypass(host.rpartition("@")[2]):
        return ""
    return proxy.rpartition("://")[2].rpartition("@")[2].partition("/")[0]


def _load_library() -> bool:
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # its command line: click, rich, 30 ms
    try:
        import anyio._backends._asyncio  # noqa: F401  # else loaded by the first connection, on the loop
        import httpx  # noqa: F401
    finally:
        if sys.modules.get("httpx._main") is None:
            sys.modules.pop("httpx._main", None)
    from urllib.request import getproxies

    return any(proxy.startswith("https:") for proxy in getproxies().values())


def _load_authorities(context: ssl.SSLContext) -> None:
    if path := os.environ.get("SSL_CERT_FILE"):
        context.load_verify_locations(cafile=path)
    elif path := os.environ.get("SSL_CERT_DIR"):
        context.load_verify_locations(capath=path)
    else:
        import certifi

        context.load_verify_locations(cafile=certifi.where())
