"""The events around a call. All but `tools/change` reach the caller's scope (`spec/tools.md` §3).

A listener of the three waterfalls is `async def on(payload, next)` and answers what `await next()` gave
it, or something else.
"""

from collections.abc import Awaitable
from typing import Any

import msgspec

from dsh.capabilities.spill import Spilled
from dsh.kernel import Event
from dsh.session.message import Message
from dsh.tools.content import Blocks
from dsh.tools.execution import ToolExecution, ToolResult


class Allow(msgspec.Struct, frozen=True):
    """The call may run, unless a guard objects."""


class Deny(msgspec.Struct, frozen=True):
    """The call may not run. The model reads `Error: <reason>`."""

    reason: str


class Ask(msgspec.Struct, frozen=True):
    """A person decides. Without an approval service this is a denial."""

    reason: str | None = None


PreDecision = Allow | Deny | Ask


class Accept(msgspec.Struct, frozen=True, kw_only=True):
    """Keep the result, or replace its content or its value (not both)."""

    content: Blocks | None = None
    value: Any = msgspec.UNSET
    """Replaces a success's value: validated and rendered like the tool's own."""
    whole: Spilled | None = None
    """Where all of what `content` shows a part of is kept already."""
    additional_contexts: tuple[Message, ...] = ()
    """Come after what the tool itself deferred."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """Turn the result into a failure whose content is `feedback`; the tool's own contexts are dropped."""

    feedback: Blocks
    additional_contexts: tuple[Message, ...] = ()


PostDecision = Accept | Block


class Settled(msgspec.Struct, frozen=True, eq=False):
    """Payload of `tools/post-execute` and `tools/result`: the execution and its outcome."""

    execution: ToolExecution
    result: ToolResult


class ToolsChanged(msgspec.Struct, frozen=True, eq=False):
    """Payload of `tools/change`: the layer that changed, None for the global one."""

    scope: object | None


TOOLS_PRE_EXECUTE: Event[ToolExecution, Awaitable[PreDecision]] = Event(
    "tools/pre-execute", "waterfall", scoped=lambda execution: execution.agent
)
"""May the call run? Answer `Allow`, `Deny` or `Ask`."""
TOOLS_EXECUTE: Event[ToolExecution, Awaitable[ToolResult]] = Event(
    "tools/execute", "waterfall", scoped=lambda execution: execution.agent
)
"""Around the body of the tool."""
TOOLS_POST_EXECUTE: Event[Settled, Awaitable[PostDecision]] = Event(
    "tools/post-execute", "waterfall", scoped=lambda settled: settled.execution.agent
)
"""Keep the result, replace it, or block it with feedback, before the model reads it."""
TOOLS_RESULT: Event[Settled, None] = Event(
    "tools/result", "emit", contained=True, scoped=lambda settled: settled.execution.agent
)
"""The call is settled."""
TOOLS_CHANGE: Event[ToolsChanged, None] = Event("tools/change", "emit")
"""A raising listener undoes the registration."""
