"""One connection to a server, through the official SDK: its client session over streams of ours.

Importing this module loads the SDK, which takes most of a second: a row does it in a thread while its server
starts.
"""

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.client._transport import TransportStreams
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.exceptions import MCPError
from mcp_types.version import LATEST_HANDSHAKE_VERSION
from pydantic import TypeAdapter, ValidationError

from dsh import __version__
from dsh.plugins.mcp_client.failure import Gone, McpError
from dsh.plugins.mcp_client.listed import (
    MAX_PAGES,
    MAX_TOOLS,
    Listed,
    description_of,
)
from dsh.plugins.mcp_client.result import lossless
from dsh.plugins.mcp_client.sieve import shown
from dsh.plugins.mcp_client.wire import Wire, misfit

LOG_CHARS = 1_000
"""Of one message that a server logs."""
SESSION_LOST = "Session terminated"
"""What the SDK says for status 404: the server was started anew, say."""
LISTEN_S = 5.0
"""How long a server of the newer protocol may take to accept that it tells of changes."""

_Answer: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


class Connection:
    """A server that has been greeted. Lives in the task that entered `connected`; may be used by all."""

    def __init__(self, wire: Wire, session: ClientSession) -> None:
        self._wire, self._session = wire, session

    @property
    def over(self) -> asyncio.Event:
        """Set when the server is gone."""
        return self._wire.over

    async def list_tools(self) -> list[Listed]:
        """All tools, page after page, in the order of the server.

        Raises:
            McpError: a page fails, pages do not end, or a name comes twice. `Gone` where it went away.
        """
        found: dict[str, Listed] = {}
        cursors: set[str] = set()
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
            try:
                page = await self._session.list_tools(params=params)
            except MCPError as error:
                if error.code == types.METHOD_NOT_FOUND:
                    return []
                if _is_closed(error):
                    raise Gone("it went away") from None
                raise McpError(f"tools/list failed: {_answered(error)}") from None
            except ValidationError as error:
                raise McpError(f"it answered tools/list with something else: {misfit(error)}") from None
            for tool in page.tools:
                if tool.name in found:
                    raise McpError(f"it lists the tool {shown(tool.name)!r} twice")
                found[tool.name] = _listed(tool)
            if len(found) > MAX_TOOLS:
                raise McpError(f"it lists more than {MAX_TOOLS} tools")
            cursor = page.next_cursor
            if cursor is None:
                return list(found.values())
            if cursor in cursors:
                raise McpError("its list of tools has no end: a cursor came twice")
            cursors.add(cursor)
        raise McpError(f"its list of tools has more than {MAX_PAGES} pages")

    async def is_well(self, bound_s: float) -> bool:
        """Whether it answers a ping in this time. One of the newer protocol, which has no sessions, is."""
        if self._wire.is_newer:
            return True
        try:
            async with asyncio.timeout(bound_s):
                await self._session.send_ping()
        except MCPError as error:
            return error.code == types.METHOD_NOT_FOUND
        except (TimeoutError, ValidationError):
            return False
        return True

    async def call(
        self, name: str, arguments: Mapping[str, Any], on_progress: Callable[[], None]
    ) -> dict[str, Any]:
        """The answer to `tools/call`, as lossless JSON: `content`, at times `structuredContent`, `isError`.

        Whoever cancels the waiting task has the server told so.

        Raises:
            McpError: the server refused or answered something else. `Gone` where it went away.
        """

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            on_progress()

        request = types.CallToolRequest(
            params=types.CallToolRequestParams(name=name, arguments=dict(arguments))
        )
        try:
            answer = await self._session.send_request(request, _Answer, progress_callback=progressed)
        except MCPError as error:
            if _is_closed(error):
                raise Gone("it went away during the call, which may have taken effect") from None
            if error.message == SESSION_LOST:
                self._wire.over.set()
                raise Gone("it has forgotten the session; a new one is made") from None
            raise McpError(_answered(error)) from None
        except ValidationError as error:
            raise McpError(f"it answered with something that is no result: {misfit(error)}") from None
        if isinstance(answer, types.InputRequiredResult):
            raise McpError("it asks a person for more before it goes on, and nobody is there")
        dumped: dict[str, Any] = lossless(answer.model_dump(by_alias=True, mode="python", exclude_none=True))
        return dumped


@asynccontextmanager
async def connected(
    streams: TransportStreams,
    *,
    on_change: Callable[[], None],
    skip: Callable[[str, str], None],
    log: Callable[[str, str], None],
) -> AsyncIterator[Connection]:
    """Greet a server and stay connected.

    Args:
        on_change: called when the server says that its tools have changed.
        skip: told name and reason of each tool that cannot be used.
        log: told level and text of what the server logs.

    Raises:
        McpError: it does not speak the protocol.
    """
    _be_quiet()

    async def heard(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            on_change()

    async def logged(params: types.LoggingMessageNotificationParams) -> None:
        log(params.level, _one_line(params.data))

    wire = Wire(streams, skip)
    client = types.Implementation(name="dsh", version=__version__)
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(
            ClientSession(dispatcher=wire, message_handler=heard, logging_callback=logged, client_info=client)
        )
        await _greet(session)
        wire.version = session.protocol_version or LATEST_HANDSHAKE_VERSION
        if wire.is_newer:
            await _follow(session, stack)
        yield Connection(wire, session)


async def _greet(session: ClientSession) -> None:
    """The handshake that nearly all servers know; one that is too new for it is asked as it wants to be."""
    try:
        try:
            await session.initialize()
        except MCPError as error:
            if error.code not in (types.UNSUPPORTED_PROTOCOL_VERSION, types.METHOD_NOT_FOUND):
                raise
            await session.discover()
    except MCPError as error:
        if _is_closed(error):
            raise McpError("it ended before it answered") from None
        raise McpError(f"initialize failed: {_answered(error)}") from None
    except ValidationError as error:
        raise McpError(f"it answered initialize with something else: {misfit(error)}") from None
    except RuntimeError as error:
        raise McpError(shown(str(error))) from None


async def _follow(session: ClientSession, stack: AsyncExitStack) -> None:
    """Ask a server of the newer protocol to tell of changes; one that will not is taken as it is."""
    capabilities = session.server_capabilities
    if capabilities is None or capabilities.tools is None or not capabilities.tools.list_changed:
        return
    with contextlib.suppress(MCPError, SubscriptionLost, TimeoutError):
        async with asyncio.timeout(LISTEN_S):
            await stack.enter_async_context(listen(session, tools_list_changed=True))


def _listed(tool: types.Tool) -> Listed:
    hints = tool.annotations
    return Listed(
        name=tool.name,
        description=description_of(tool.description or tool.title or ""),
        parameters=tool.input_schema,
        output_schema=tool.output_schema,
        is_read_only=hints is not None and hints.read_only_hint is True,
    )


def _is_closed(error: MCPError) -> bool:
    """Whether the SDK says that the streams have ended; servers use the same code for failures of theirs."""
    return error.code == types.CONNECTION_CLOSED and error.message == "Connection closed"


def _answered(error: MCPError) -> str:
    data = "" if error.data in (None, "") else f": {_one_line(error.data)}"
    return f"{shown(error.message, LOG_CHARS)} (code {error.code}){data}"


def _one_line(data: Any) -> str:
    return shown(data if isinstance(data, str) else json.dumps(data, default=str), LOG_CHARS)


def _be_quiet() -> None:
    """The SDK tells its troubles to loggers of its own; where nobody listens they would land on stderr."""
    for name in ("mcp", "client", "httpx2"):
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
