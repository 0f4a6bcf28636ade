"""What a model says, in no server's spelling: the parts that each dialect puts on its own wire."""

from typing import Any, Literal, TypeAlias

import msgspec

from dsh.testing.mock_server.plan import MockOptions, Pause, Reset, Stall, pieces


class Opening(msgspec.Struct, frozen=True):
    """The reply begins: the role, and on Anthropic's wire the input tokens."""


class Text(msgspec.Struct, frozen=True):
    """One delta of the answer."""

    text: str


class Reasoning(msgspec.Struct, frozen=True):
    """One delta of the reasoning."""

    text: str


class Redacted(msgspec.Struct, frozen=True):
    """A block of reasoning that only the provider can read. Chat-completions servers have none."""

    data: str


class Call(msgspec.Struct, frozen=True):
    """A whole tool call, its arguments in fragments."""

    id: str | None
    name: str
    fragments: tuple[str, ...]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens, each counted once."""

    uncached: int = 36
    cache_read: int = 64
    cache_write: int = 0
    output: int = 20
    """Reasoning included."""
    reasoning: int = 0


Ending: TypeAlias = Literal["stop", "tool-calls", "max-tokens", "refusal", "pause", "overflow", "resource"]
"""Why a reply ends. A dialect without a word for it uses its nearest; any other text is sent as it is."""


USED = Usage()


class Finish(msgspec.Struct, frozen=True, kw_only=True):
    """Why the reply ended, and what it used."""

    reason: Ending | str = "stop"
    usage: Usage | Any = USED
    """None: nothing is told. Anything else than `Usage` is sent as it is."""


class End(msgspec.Struct, frozen=True):
    """The mark of a whole stream: `[DONE]`, `message_stop`."""


FaultKind: TypeAlias = Literal[
    "rate_limit",
    "server_error",
    "service_unavailable",
    "overloaded",
    "auth_error",
    "permission",
    "not_found",
    "invalid_request",
    "too_large",
    "context_overflow",
    "quota_exceeded",
    "request_timeout",
    "too_early",
]


class Fault(msgspec.Struct, frozen=True):
    """An error as each server words it; as a part of a reply it stands inside the stream."""

    kind: FaultKind
    message: str = ""
    """Instead of the dialect's own wording."""


Part: TypeAlias = (
    Opening | Text | Reasoning | Redacted | Call | Finish | End | Fault | bytes | Pause | Reset | Stall
)
"""Bytes are sent as they are, between whole events."""


def said(text: str, options: MockOptions) -> list[Part]:
    """The text as deltas."""
    return [Text(piece) for piece in pieces(text, options.chunk_size)]


def thought(text: str, options: MockOptions) -> list[Part]:
    """The reasoning as deltas."""
    return [Reasoning(piece) for piece in pieces(text, options.chunk_size)]


def whole(*parts: Part, reason: Ending | str = "stop", usage: Usage | Any = USED) -> list[Part]:
    """A reply from its opening to the mark of its end."""
    return [Opening(), *parts, Finish(reason=reason, usage=usage), End()]
