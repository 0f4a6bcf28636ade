"""How a row reaches its server: a program that it starts, or an address that it asks."""

import asyncio
import importlib
import importlib.util
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from dsh.capabilities.subprocess import Collect, ExitStatus, ProcessHandle, SpawnSpec, Subprocess
from dsh.errors import CompositionError
from dsh.plugins.mcp_client.config import Config, folder
from dsh.plugins.mcp_client.failure import Stuck
from dsh.plugins.mcp_client.secrets import Secrets
from dsh.plugins.mcp_client.sieve import shown

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

LIBRARIES = ("mcp", "jsonschema_rs")
MODULES = ("connection", "pipes", "http")
STDERR_BYTES = 16 * 1024
STDERR_LINES = 20
STDERR_CHARS = 600
"""What of its standard error is told when it fails: the last lines, the end of them."""
LAST_WORDS_S = 1.0
"""How long a server that was told of the end, by the end of its input, may take to go by itself."""
GRACE_MS = 2_000
"""From SIGTERM to SIGKILL."""


class Transport(Protocol):
    """One way to one server; opened once for each connection."""

    def open(self) -> "AbstractAsyncContextManager[TransportStreams]":
        """Streams to the server. At the end it is gone.

        Raises:
            Stuck: it would not go.
        """

    def last_words(self) -> str:
        """What is known of why it ended or refused; empty for nothing."""

    @property
    def has_refused(self) -> bool:
        """Whether the last message was refused below the protocol: perhaps the server knows us no more."""


def require_libraries(server: str) -> None:
    """See whether the extra is installed, without loading it.

    Raises:
        CompositionError: it is not.
    """
    if missing := [name for name in LIBRARIES if importlib.util.find_spec(name) is None]:
        raise CompositionError(
            f"MCP server {server!r}: {' and '.join(missing)} not installed",
            hint="install the extra: pip install 'dsh[mcp]'",
        )


async def load_libraries() -> None:
    """Import what stands on the SDK in a thread, so that servers start meanwhile."""

    def load() -> None:
        for name in MODULES:
            importlib.import_module(f"dsh.plugins.mcp_client.{name}")

    await asyncio.to_thread(load)


class StdioTransport:
    """Starts the program for each connection. State: the one that was started last."""

    def __init__(
        self, config: Config, subprocess: Subprocess, secrets: Secrets, warn: Callable[[str], None]
    ) -> None:
        """`warn` hears, once a connection, that the program prints what is no message."""
        self._config, self._subprocess, self._secrets, self._warn = config, subprocess, secrets, warn
        self._process: ProcessHandle | None = None
        self._status: ExitStatus | None = None

    @asynccontextmanager
    async def open(self) -> "AsyncIterator[TransportStreams]":
        self._process, self._status = None, None
        process = self._process = self._subprocess.spawn(self._spec())
        try:
            await load_libraries()
            from dsh.plugins.mcp_client.pipes import piped

            async with piped(process.reader, process.writer, self._noise_once()) as streams:
                yield streams
        finally:
            await self._end(process)

    def _spec(self) -> SpawnSpec:
        config = self._config
        return SpawnSpec(
            argv=[config.command or "", *config.args],
            cwd=folder(config),
            stdin="pipe",
            stdout="pipe",
            stderr=Collect(STDERR_BYTES),
            grace_ms=GRACE_MS,
            env=dict(config.env),
        )

    def _noise_once(self) -> Callable[[bytes], None]:
        is_told = False

        def noise(line: bytes) -> None:
            nonlocal is_told
            if not is_told:
                is_told = True
                text = shown(line.decode("utf-8", "replace"))
                self._warn(f"prints what is no message on its standard output, which is left out: {text}")

        return noise

    async def _end(self, process: ProcessHandle) -> None:
        """The end of its input, then SIGTERM, then SIGKILL, for all that it started.

        Raises:
            Stuck: something of it is still there.
        """
        process.writer.close()
        try:
            await asyncio.wait((asyncio.ensure_future(process.done),), timeout=LAST_WORDS_S)
        finally:
            process.terminate()
        is_gone = await process.wait_for_exit()
        self._status = await process.done
        if not is_gone:
            raise Stuck(f"process {process.pid} would not end")

    @property
    def has_refused(self) -> bool:
        return False

    def last_words(self) -> str:
        if self._process is None:
            return ""
        words = [_ended(self._status)] if self._status is not None else []
        said = self._process.stderr.read().text.strip().splitlines()[-STDERR_LINES:]
        if said:
            tail = self._secrets.hide(shown(" | ".join(line.strip() for line in said), STDERR_BYTES))
            tail = tail if len(tail) <= STDERR_CHARS else f"…{tail[-STDERR_CHARS:]}"
            words.append(f"stderr: {tail}")
        return "; ".join(filter(None, words))


class HttpTransport:
    """Asks one address. State: how it refused the last message; empty where it took it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._refusal = ""
        parts = urlsplit(config.url or "")
        self._origin = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @asynccontextmanager
    async def open(self) -> "AsyncIterator[TransportStreams]":
        self._refusal = ""
        await load_libraries()
        from dsh.plugins.mcp_client.http import asked

        config = self._config
        async with asked(
            config.url or "",
            config.headers,
            silence_s=config.tool_call_timeout_ms / 1000 + 1,
            answered=self._answered,
        ) as streams:
            yield streams

    def _answered(self, refusal: str) -> None:
        self._refusal = refusal

    def last_words(self) -> str:
        return self._refusal or f"asked was {self._origin}"

    @property
    def has_refused(self) -> bool:
        return bool(self._refusal)


def _ended(status: ExitStatus) -> str:
    if status.signal is not None:
        return f"ended by {status.signal}"
    return "" if status.exit_code is None else f"exited with code {status.exit_code}"
