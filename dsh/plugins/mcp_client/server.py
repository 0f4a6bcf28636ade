"""The life of one server: connect, offer its tools, follow its changes, connect again when it is gone."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dsh.kernel import Cancelled, Context
from dsh.kernel.foreign import contained
from dsh.kernel.task import retrieve
from dsh.plugins.mcp_client.config import Config
from dsh.plugins.mcp_client.failure import Gone, McpError, Stuck, reason_of, without
from dsh.plugins.mcp_client.offer import Offer
from dsh.plugins.mcp_client.transport import Transport
from dsh.tools.error import ToolTimeoutError
from dsh.tools.execution import ToolExecution

if TYPE_CHECKING:
    from dsh.plugins.mcp_client.connection import Connection

RESYNC_GAP_S = 0.1
"""Between two lists: a server that never stops changing does not keep us busy."""
CANCEL_S = 2.0
"""How long a cancelled call may take to tell the server."""
CLOSE_S = 8.0
"""How long the end may take: last words, SIGTERM, SIGKILL."""


class Server:
    """One row's server. State: the connection in use, and whether another one may follow."""

    def __init__(self, ctx: Context, config: Config, transport: Transport) -> None:
        self._ctx, self._config, self._transport = ctx, config, transport
        self._name = config.server_name
        self._offer = Offer(ctx, self._name, self.call, self._warn)
        self._connection: Connection | None = None
        self._settled = asyncio.Event()
        """There is a connection, or there will be none any more."""
        self._closing = asyncio.Event()
        self._changed = asyncio.Event()
        self._first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._last_reason = ""

    async def start(self) -> None:
        """Come up, or find out that this does not work for now.

        Raises:
            McpError: it does not, and the row says that this is a failure.
        """
        self._first.add_done_callback(retrieve)
        self._ctx.spawn(self._live(), f"MCP server {self._name}")
        self._ctx.effect(lambda: self._end, f"the end of MCP server {self._name}")
        await self._first

    async def _end(self) -> None:
        """Let a server that is up go in order; one that is only coming up is stopped with the task."""
        self._closing.set()
        if self._connection is None:
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._over.wait()
        except TimeoutError:
            self._warn("does not end")

    # -- one life after the other ----------------------------------------------------------------

    async def _live(self) -> None:
        failures = 0
        try:
            while not self._closing.is_set():
                reason, lived_s = await self._one_life()
                if self._closing.is_set():
                    return
                if lived_s * 1000 >= self._config.reconnect.max_delay_ms:
                    failures = 0
                failures += 1
                self._last_reason = reason
                if not await self._try_again(failures, reason):
                    return
        finally:
            self._connection = None
            self._settled.set()
            self._over.set()
            if not self._first.done():
                self._first.cancel()

    async def _one_life(self) -> tuple[str, float]:
        """From one start to one end: why it ended, and how long it was of use, in seconds.

        Raises:
            Stuck: it would not end.
        """
        loop = asyncio.get_running_loop()
        ready_at: float | None = None
        reason = ""
        try:
            async with asyncio.timeout(self._config.startup_timeout_ms / 1000) as bound:
                async with self._transport.open() as streams:
                    from dsh.plugins.mcp_client.connection import connected

                    async with connected(
                        streams, on_change=self._changed.set, skip=self._skipped, log=self._logged
                    ) as connection:
                        self._changed.clear()
                        tools = await connection.list_tools()
                        bound.reschedule(None)
                        ready_at = loop.time()
                        self._offer.update(tools)
                        self._is_up(connection)
                        try:
                            await self._serve(connection)
                        finally:
                            self._is_down()
        except Stuck:
            self._is_down()
            self._give_up("would not end")
            raise
        except TimeoutError:
            reason = "it is gone"
            if ready_at is None:
                reason = f"it did not come up within {self._config.startup_timeout_ms} ms (startupTimeoutMs)"
        except BaseException as error:
            reason = reason_of(contained(error, f"MCP server {self._name}"))
        self._is_down()
        words = self._transport.last_words()
        full = "; ".join(filter(None, (reason or "it is gone", words)))
        return self._clean(full), 0.0 if ready_at is None else loop.time() - ready_at

    async def _serve(self, connection: "Connection") -> None:
        """Until it is gone or dsh ends: list its tools again whenever it says that they have changed."""
        while True:
            await self._any(connection.over, self._closing, self._changed)
            if connection.over.is_set() or self._closing.is_set():
                return
            self._changed.clear()
            try:
                async with asyncio.timeout(self._config.startup_timeout_ms / 1000):
                    self._offer.update(await connection.list_tools())
            except (McpError, TimeoutError) as error:
                if not connection.over.is_set():
                    self._warn(f"its tools stay as they were: {self._clean(reason_of(error))}")
            await self._any(connection.over, self._closing, timeout_s=RESYNC_GAP_S)

    async def _try_again(self, failures: int, reason: str) -> bool:
        """Whether another start follows; says what has happened, and waits."""
        reconnect = self._config.reconnect
        goes_on = reconnect.enabled and failures <= reconnect.max_attempts
        if not self._first.done():
            if self._config.fail_on_startup_error:
                self._first.set_exception(
                    McpError(
                        f"MCP server {self._name!r} did not start: {reason}",
                        hint="mend it, or set failOnStartupError: false to go on without it",
                    )
                )
                return False
            self._warn(f"did not start{', it is tried again' if goes_on else ''}: {reason}")
            self._first.set_result(None)
        elif failures == 1 and goes_on:
            self._warn(f"is gone, it is tried again: {reason}")
        if not goes_on:
            self._give_up(reason, is_news=failures > 1)
            return False
        self._ctx.logger.debug("MCP server %s: attempt %d: %s", self._name, failures, reason)
        return not await self._any(self._closing, timeout_s=reconnect.delay_s(failures))

    def _give_up(self, reason: str, *, is_news: bool = True) -> None:
        had = len(self._offer)
        self._offer.withdraw()
        if is_news or had:
            also = f", its {had} tools with it" if had else ""
            self._ctx.logger.error("MCP server %s is given up%s: %s", self._name, also, reason)

    # -- calls -----------------------------------------------------------------------------------

    async def call(self, tool: str, arguments: Mapping[str, Any], execution: ToolExecution) -> dict[str, Any]:
        """Have the server run a tool.

        Raises:
            McpError: it is not there, refuses, or goes away.
            ToolTimeoutError: no answer in time.
            Cancelled: the caller stopped it; the server was told.
        """
        connection = None
        try:
            connection = await self._connected(execution)
            return await self._answer(connection, tool, arguments, execution)
        except McpError as error:
            if isinstance(error, Gone) and self._connection is connection:
                self._is_down()  # whoever calls next waits for the next connection
            raise McpError(f"MCP server {self._name!r}: {self._clean(error.message)}") from None

    async def _connected(self, execution: ToolExecution) -> "Connection":
        """The connection; while it is made anew, a call waits for it."""
        timeout_ms = self._config.tool_call_timeout_ms
        if not self._settled.is_set():
            try:
                async with asyncio.timeout(timeout_ms / 1000):
                    await execution.signal.race(self._settled.wait())
            except TimeoutError:
                raise McpError(f"it is not there ({self._last_reason})") from None
        if self._connection is None:
            raise McpError(f"it is not there any more ({self._last_reason or 'dsh is ending'})")
        return self._connection

    async def _answer(
        self, connection: "Connection", tool: str, arguments: Mapping[str, Any], execution: ToolExecution
    ) -> dict[str, Any]:
        loop, config, token = asyncio.get_running_loop(), self._config, execution.signal
        token.raise_if_cancelled()
        ends_at = loop.time() + config.tool_call_total_timeout_ms / 1000
        heard_at = loop.time()

        def progressed() -> None:
            nonlocal heard_at
            heard_at = loop.time()

        work = asyncio.ensure_future(connection.call(tool, arguments, progressed))
        gate = asyncio.Event()
        undo = token.on_cancel(lambda _: gate.set())
        waiter = asyncio.ensure_future(gate.wait())
        try:
            while not work.done():
                at = min(ends_at, heard_at + config.tool_call_timeout_ms / 1000)
                if token.cancelled or loop.time() >= at:
                    break
                await asyncio.wait(
                    (work, waiter), timeout=at - loop.time(), return_when=asyncio.FIRST_COMPLETED
                )
            if work.done():
                return work.result()
            await _stopped(work)
            if token.cancelled:
                raise Cancelled(token.reason)
            total, quiet = config.tool_call_total_timeout_ms, config.tool_call_timeout_ms
            raise ToolTimeoutError(total if loop.time() >= ends_at else quiet)
        finally:
            undo()
            waiter.cancel()
            if not work.done():
                work.add_done_callback(retrieve)
                work.cancel()

    # -- small things ----------------------------------------------------------------------------

    def _is_up(self, connection: "Connection") -> None:
        if self._last_reason:
            self._ctx.logger.info("MCP server %s is back", self._name)
        self._connection = connection
        self._settled.set()
        if not self._first.done():
            self._first.set_result(None)

    def _is_down(self) -> None:
        self._connection = None
        self._settled.clear()

    async def _any(self, *events: asyncio.Event, timeout_s: float | None = None) -> bool:
        """Wait for the first of them; False when the time was over before."""
        waiters = [asyncio.ensure_future(event.wait()) for event in events]
        try:
            done, _ = await asyncio.wait(waiters, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            for waiter in waiters:
                waiter.cancel()

    def _skipped(self, tool: str, reason: str) -> None:
        self._warn(f"its tool {tool!r} is left out: {reason}")

    def _logged(self, level: str, text: str) -> None:
        self._ctx.logger.debug("MCP server %s: %s: %s", self._name, level, self._clean(text))

    def _warn(self, text: str) -> None:
        self._ctx.logger.warning("MCP server %s %s", self._name, text)

    def _clean(self, text: str) -> str:
        return without(text, [*self._config.env.values(), *self._config.headers.values()])


async def _stopped(work: "asyncio.Task[Any]") -> None:
    """Cancel a call and wait, not for long, until the server has been told."""
    work.cancel()
    work.add_done_callback(retrieve)
    await asyncio.wait((work,), timeout=CANCEL_S)
