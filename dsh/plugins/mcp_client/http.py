"""The SDK's streams over HTTP, by the HTTP client that the SDK brings.

Importing this module loads the SDK.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus

import httpx2
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from dsh.capabilities.proxy import proxy_for, proxy_problem
from dsh.plugins.mcp_client.failure import McpError
from dsh.plugins.mcp_client.lines import MAX_LINE_BYTES

CONNECT_S = 10.0
FAREWELL_S = 1.0
SILENCE_S = 300.0
"""How long a stream may say nothing before it is opened anew."""


@asynccontextmanager
async def asked(
    url: str, headers: Mapping[str, str], *, silence_s: float, answered: Callable[[str], None]
) -> AsyncIterator[TransportStreams]:
    """Streams to the server at this URL.

    Redirects are followed within the origin of the URL only, so that headers go nowhere else.

    Args:
        silence_s: how long an answer may keep silent.
        answered: told of each message how the server refused it; an empty text where it took it.

    Raises:
        McpError: the proxy for this URL cannot be used.
    """
    proxy = proxy_for(url)
    if proxy and (problem := proxy_problem(proxy)):
        raise McpError(f"the proxy cannot be used: {problem}")

    async def look(response: httpx2.Response) -> None:
        if response.request.method != "POST":
            return
        is_error = response.status_code >= HTTPStatus.BAD_REQUEST
        answered(f"HTTP {response.status_code} {response.reason_phrase}".rstrip() if is_error else "")

    client = httpx2.AsyncClient(
        headers=dict(headers),
        timeout=httpx2.Timeout(CONNECT_S, read=max(SILENCE_S, silence_s), write=SILENCE_S),
        transport=_Bounded(proxy=proxy or None),
        event_hooks={"response": [look]},
    )
    async with (
        client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_LINE_BYTES) as streams,
    ):
        yield streams


class _Bounded(httpx2.AsyncHTTPTransport):
    """Ends a body that outgrows what is kept of a message; the events of a stream are bounded one by one."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":  # the farewell of a session: nobody waits for it long
            request.extensions["timeout"] = httpx2.Timeout(FAREWELL_S).as_dict()
        response = await super().handle_async_request(request)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _BoundedBody(response.stream)
        return response


class _BoundedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for piece in self._body:
            size += len(piece)
            if size > MAX_LINE_BYTES:
                raise McpError(f"it sent an answer of more than {MAX_LINE_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()
