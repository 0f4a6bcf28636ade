"""One call of a tool: how long it may take, and how it ends early."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dsh.kernel import Cancelled, CancelToken
from dsh.kernel.task import retrieve
from dsh.plugins.mcp_client.config import Config
from dsh.tools.error import ToolTimeoutError

if TYPE_CHECKING:
    from dsh.plugins.mcp_client.connection import Connection

CANCEL_S = 2.0
"""How long a cancelled call may take to tell the server."""


async def answer(
    connection: "Connection", tool: str, arguments: Mapping[str, Any], token: CancelToken, config: Config
) -> dict[str, Any]:
    """What the server answers.

    Raises:
        McpError: it refuses, or goes away.
        ToolTimeoutError: it does not answer in time; it was told.
        Cancelled: the caller stopped it; the server was told.
    """
    loop = asyncio.get_running_loop()
    ends_at = loop.time() + config.tool_call_total_timeout_ms / 1000
    heard_at = loop.time()

    def progressed() -> None:
        nonlocal heard_at
        heard_at = loop.time()

    work = asyncio.ensure_future(connection.call(tool, arguments, progressed))
    work.add_done_callback(retrieve)
    is_cancelled = asyncio.Event()
    undo = token.on_cancel(lambda _: is_cancelled.set())
    waiter = asyncio.ensure_future(is_cancelled.wait())
    try:
        while not (work.done() or token.cancelled):
            left_s = min(ends_at, heard_at + config.tool_call_timeout_ms / 1000) - loop.time()
            if left_s <= 0:
                break
            await asyncio.wait((work, waiter), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        work.cancel()
        await asyncio.wait((work,), timeout=CANCEL_S)
        if token.cancelled:
            raise Cancelled(token.reason)
        total_ms, quiet_ms = config.tool_call_total_timeout_ms, config.tool_call_timeout_ms
        raise ToolTimeoutError(total_ms if loop.time() >= ends_at else quiet_ms)
    finally:
        undo()
        waiter.cancel()
        work.cancel()
