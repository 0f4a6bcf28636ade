"""What a row says of its server."""

import os
import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from dsh.capabilities.bounds import TimerMs
from dsh.capabilities.settings import SECRET
from dsh.errors import CompositionError

Secret = Annotated[str, SECRET]
ServerName = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9_-]{1,32}\Z")]
HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
Attempts = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]


class Reconnect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """What happens when the server is gone, or does not come up."""

    enabled: bool = True
    """Whether it is started or asked again."""
    initial_delay_ms: TimerMs = 500
    """Before the first attempt; each further one waits twice as long."""
    max_delay_ms: TimerMs = 30_000
    """The longest wait. A connection that has lived as long starts the count anew."""
    max_attempts: Attempts = 10
    """In a row; then its tools are taken back."""

    def delay_s(self, attempt: int) -> float:
        """How long attempt number `attempt` (from 1) waits, in seconds."""
        return min(self.max_delay_ms, self.initial_delay_ms * 2.0 ** min(attempt - 1, 60)) / 1000


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row: one server."""

    transport: Literal["stdio", "streamable-http"]
    """`stdio` starts a program and talks to it over its pipes; `streamable-http` asks a URL."""
    server_name: ServerName
    """Stands in the names of its tools; different for each row."""
    command: str | None = None
    """stdio: the program."""
    args: list[str] = []
    """stdio: its arguments."""
    env: dict[str, Secret] = {}
    """stdio: variables over the environment of dsh, out of which everything was taken that looks secret."""
    cwd: str = ""
    """stdio: the folder it starts in; the one of dsh when empty, and relative to that."""
    url: str | None = None
    """streamable-http: the address, with http or https."""
    headers: dict[str, Secret] = {}
    """streamable-http: sent with each request."""
    startup_timeout_ms: TimerMs = 30_000
    """From the start of a connection until its tools are known. The start of dsh waits as long, at most three
    quarters of `DSH_START_TIMEOUT`."""
    tool_call_timeout_ms: TimerMs = 60_000
    """For an answer, counted anew from each report of progress."""
    tool_call_total_timeout_ms: TimerMs = 1_800_000
    """For an answer, whatever progress is reported."""
    fail_on_startup_error: bool = False
    """Whether dsh ends when the server does not come up; else it goes on without it and tries again."""
    reconnect: Reconnect = Reconnect()
    """What happens when it is gone."""


def check(config: Config) -> None:
    """Whether what is said fits together.

    Raises:
        CompositionError: it does not.
    """
    name = config.server_name
    is_http = config.transport == "streamable-http"
    missing, given = ("url", config.url) if is_http else ("command", config.command)
    if not given:
        raise CompositionError(
            f"MCP server {name!r}: transport {config.transport} needs {missing}", hint=f"set {missing}"
        )
    stdio = {"command": config.command, "args": config.args, "env": config.env, "cwd": config.cwd}
    http = {"url": config.url, "headers": config.headers}
    if extra := [key for key, value in (stdio if is_http else http).items() if value]:
        raise CompositionError(
            f"MCP server {name!r}: {', '.join(extra)} has no meaning with transport {config.transport}",
            hint="leave it out, or choose the other transport",
        )
    if problem := next(_problems(config), None):
        raise CompositionError(f"MCP server {name!r}: {problem}")


def _problems(config: Config) -> Iterator[str]:
    """What is wrong with single values. It never shows one that may be a secret."""
    reconnect = config.reconnect
    if reconnect.initial_delay_ms > reconnect.max_delay_ms:
        yield (
            f"reconnect.initialDelayMs {reconnect.initial_delay_ms} is more than maxDelayMs "
            f"{reconnect.max_delay_ms}"
        )
    words = {"command": config.command or "", "cwd": config.cwd}
    words |= {f"args[{at}]": word for at, word in enumerate(config.args)}
    words |= {f"env.{name}": value for name, value in config.env.items()}
    for key, word in words.items():
        if "\0" in word:
            yield f"{key} holds a NUL character, which no program can be given"
    for name in config.env:
        if not name or "=" in name or "\0" in name:
            yield f"env: {name!r} is no name of a variable"
    for name, value in config.headers.items():
        if not HEADER_NAME.fullmatch(name):
            yield f"headers: {name!r} is no name of a header"
        if not HEADER_VALUE.fullmatch(value):
            yield f"headers.{name} holds something else than printable ASCII characters in one line"
    if config.url is not None and not _is_address(config.url):
        yield "url is no http or https address; write it with scheme and host"


def folder(config: Config) -> str:
    """Where the program starts, absolute."""
    return os.path.abspath(os.path.expanduser(config.cwd or "."))  # noqa: PTH100, PTH111


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
