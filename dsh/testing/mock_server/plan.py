"""What a mock server sends: one answer as a list of steps, and the options that fill the behaviours."""

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

STREAM_HEADERS: Mapping[str, str] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
}
JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}
Outcome = Literal["completed", "reset", "stalled", "client_closed", "server_error"]


class Pause(msgspec.Struct, frozen=True):
    """Send nothing for a while."""

    ms: float


class Reset(msgspec.Struct, frozen=True):
    """Destroy the connection without an orderly end."""


class Stall(msgspec.Struct, frozen=True):
    """Stay silent until the client goes."""


Step: TypeAlias = bytes | Pause | Reset | Stall
"""Bytes are sent as one HTTP chunk."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. `status` 0 means that not even a status line is sent."""

    status: int = 200
    headers: Mapping[str, str] = msgspec.field(default_factory=lambda: STREAM_HEADERS)
    steps: tuple[Step, ...] = ()
    calls: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The tool calls it makes, by id, and the reasoning before each."""

    def sent(self) -> bytes:
        """All bytes of the body, as if there were no pauses."""
        return b"".join(step for step in self.steps if isinstance(step, bytes))


class MockOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the behaviours say. Defaults as in `spec/llm.md` §7."""

    success_text: str = "Hello from the mock model."
    partial_text: str = "This reply will break"
    reasoning_text: str = "Thinking about it."
    chunk_size: int = 8
    """Code points per delta."""
    chunk_delay_ms: float = 25
    """Between the deltas of `slow_success`."""
    disconnect_delay_ms: float = 10
    """Between the last bytes and a reset."""
    retry_after_ms: float = 1000
    """Told by `rate_limit`, rounded up to whole seconds."""
    request_id: str = "mock-request-1"
    """`x-request-id` of every answer, `request-id` on Anthropic's wire."""
    tool_name: str = "bash"
    tool_arguments: str = '{"command": "echo mock", "description": "mock call"}'

    def __post_init__(self) -> None:
        if self.chunk_size < 1:
            raise ValueError(f"chunk_size counts code points from 1, found {self.chunk_size}")
        for name in ("chunk_delay_ms", "disconnect_delay_ms", "retry_after_ms"):
            check_delay(name, getattr(self, name))
        if not (self.request_id.isascii() and self.request_id.isprintable()):
            raise ValueError(f"request_id is printable ASCII, found {self.request_id!r}")


def check_delay(name: str, ms: float) -> None:
    """
    Raises:
        ValueError: nobody can wait so long.
    """
    if not 0 <= ms < math.inf:
        raise ValueError(f"{name} is a number of milliseconds from 0, found {ms}")


def pieces(text: str, size: int) -> list[str]:
    """The text cut into pieces of `size` code points."""
    return [text[at : at + size] for at in range(0, len(text), size)]
