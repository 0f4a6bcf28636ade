"""The life of one server: connect, offer its tools, follow its changes, connect again when it is gone."""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from dsh.composition.mount.loader import LOADER
from dsh.kernel import Context
from dsh.kernel.foreign import contained
from dsh.kernel.task import retrieve
from dsh.plugins.mcp_client.calls import answer
from dsh.plugins.mcp_client.config import Config
from dsh.plugins.mcp_client.failure import Gone, McpError, Stuck, reason_of
from dsh.plugins.mcp_client.offer import Offer
from dsh.plugins.mcp_client.secrets import Secrets
from dsh.plugins.mcp_client.transport import Transport
from dsh.tools.execution import ToolExecution

if TYPE_CHECKING:
    from dsh.plugins.mcp_client.connection import Connection

RESYNC_GAP_S = 0.1
"""Between two lists: a server that never stops changing does not keep us busy."""
START_SHARE = 0.75
"""Of the time that the start of dsh may take."""
HEALTH_S = 5.0
"""How long a server that has refused a call may take to say that it is well."""
CLOSE_S = 8.0
"""How long the end may take: last words, SIGTERM, SIGKILL."""


class _Life(NamedTuple):
    """One connection, from its start to its end."""

    reason: str
    """Why it ended."""
    seconds: float
    """How long it was of use."""
    is_stuck: bool
    """Something of it is still there: no other one may follow."""


class Server:
    """One row's server. State: the connection in use, and whether another one may follow."""

    def __init__(
        self,
        ctx: Context,
        config: Config,
        transport: Transport,
        secrets: Secrets,
        warn: Callable[[str], None],
    ) -> None:
        self._ctx, self._config, self._transport = ctx, config, transport
        self._clean, self._warn = secrets.hide, warn
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
        await asyncio.wait((self._first,), timeout=self._patience_s())
        if self._first.done():
            self._first.result()
        else:
            self._warn("is still starting; its tools are offered when it is up")

    def _patience_s(self) -> float | None:
        """How long the start of dsh, which is bounded, may wait for a server that it can do without."""
        loader = self._ctx.get(LOADER)
        if loader is None or self._config.fail_on_startup_error:
            return None
        return loader.bound_s * START_SHARE

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
                life = await self._one_life()
                if self._closing.is_set():
                    if life.is_stuck:
                        self._warn(life.reason)
                    return
                if life.seconds * 1000 >= self._config.reconnect.max_delay_ms:
                    failures = 0
                failures += 1
                self._last_reason = life.reason
                if not await self._try_again(failures, life):
                    return
        finally:
            self._connection = None
            self._settled.set()
            self._over.set()
            if not self._first.done():
                self._first.cancel()

    async def _one_life(self) -> _Life:
        """From one start to one end."""
        loop = asyncio.get_running_loop()
        ready_at: float | None = None
        reason, is_stuck = "it is gone", False
        try:
            async with asyncio.timeout(self._config.startup_timeout_ms / 1000) as bound:
                async with self._transport.open() as streams:
                    from dsh.plugins.mcp_client.connection import connected

                    async with connected(
                        streams, on_change=self._changed.set, skip=self._skipped, log=self._logged
                    ) as connection:
                        tools = await connection.list_tools()
                        bound.reschedule(None)
                        ready_at = loop.time()
                        self._offer.update(tools)
                        self._is_up(connection)
                        try:
                            await self._serve(connection)
                        finally:
                            self._is_down()
        except Stuck as error:
            reason, is_stuck = error.message, True
        except TimeoutError:
            if ready_at is None:
                reason = f"it did not come up within {self._config.startup_timeout_ms} ms (startupTimeoutMs)"
        except BaseException as error:
            reason = reason_of(contained(error, f"MCP server {self._name}"))
        self._is_down()
        told = "; ".join(filter(None, (reason, self._transport.last_words())))
        seconds = 0.0 if ready_at is None else loop.time() - ready_at
        return _Life(self._clean(told), seconds, is_stuck)

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
            except Gone:
                return
            except (McpError, TimeoutError) as error:
                self._warn(f"its tools stay as they were: {reason_of(error)}")
            await self._any(connection.over, self._closing, timeout_s=RESYNC_GAP_S)

    async def _try_again(self, failures: int, life: _Life) -> bool:
        """Whether another start follows; says what has happened, and waits."""
        reconnect, reason = self._config.reconnect, life.reason
        goes_on = not life.is_stuck and reconnect.enabled and failures <= reconnect.max_attempts
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
            return await answer(connection, tool, arguments, execution.signal, self._config)
        except McpError as error:
            is_lost = isinstance(error, Gone) or (connection is not None and await self._is_lost(connection))
            if is_lost and self._connection is connection:
                self._is_down()  # whoever calls next waits for the next connection
            raise McpError(f"MCP server {self._name!r}: {self._clean(error.message)}") from None

    async def _is_lost(self, connection: "Connection") -> bool:
        """Whether a server that has refused a call has lost us; then a new connection is made."""
        if not self._transport.has_refused or await connection.is_well(HEALTH_S):
            return False
        connection.over.set()
        return True

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
