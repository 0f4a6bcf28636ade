"""Plain values for tests of tools: a registry on a real kernel, an agent with a real session, short tools."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from dsh.kernel import CancelToken, Context, Scope, create_scope
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.tools.definition import ToolDefinition, ToolOutput
from dsh.tools.execution import ToolCall, ToolExecution, ToolFailure, ToolResult, ToolSuccess
from dsh.tools.registry import TOOLS, ToolRegistry

ANY = ToolOutput(schema={}, render=lambda args, value: str(value))


class StandInAgent:
    """An agent as the layers below the loop see it."""

    def __init__(self, ctx: Context, name: str = "a1", *, cwd: str | None = None) -> None:
        self.id = name
        self.session = Session(SessionHeader(id=name, created_at=0, cwd=cwd))
        self.ctx = ctx

    def open_turn(self) -> None:
        self.session.append("turn/start", {"turn": self.session.last_turn + 1})

    def logged(self, *types: str) -> list[tuple[str, Any]]:
        """Type and payload of the logged events, of these types where some are named."""
        return [(e.type, e.data) for e in self.session.events() if not types or e.type in types]


async def agent_in(
    ctx: Context, name: str = "a1", *, parent: object | None = None
) -> tuple[StandInAgent, Scope]:
    """An agent with its scope."""
    agent = StandInAgent(ctx, name)
    scope = await create_scope(ctx, agent, parent)
    agent.ctx = scope.ctx
    return agent, scope


def new_registry() -> tuple[Context, ToolRegistry]:
    ctx = Context()
    return ctx, ToolRegistry(ctx)


def tools_of(scope: Scope) -> ToolRegistry:
    """The registry as the scope's context sees it."""
    found = scope.ctx.get(TOOLS)
    assert found is not None
    return found


def tool(
    name: str = "t",
    execute: Callable[[Any, ToolExecution], Awaitable[Any]] | None = None,
    **changes: Any,
) -> ToolDefinition:
    """A tool without checks of its own that answers `"done"`."""

    async def done(_: Any, __: ToolExecution) -> Any:
        return "done"

    definition = ToolDefinition(
        name=name, description=f"tool {name}", parameters={}, output=ANY, execute=execute or done
    )
    return msgspec.structs.replace(definition, **changes)


def call(name: str = "t", arguments: Any = None, **changes: Any) -> ToolCall:
    return ToolCall(call_id="c1", name=name, arguments={} if arguments is None else arguments, **changes)


def cancelled(reason: str = "user") -> CancelToken:
    token = CancelToken()
    token.cancel(reason)
    return token


def text(result: ToolResult) -> str:
    """The text blocks of a result."""
    return "".join(block["text"] for block in result.content)


def value(result: ToolResult) -> Any:
    assert isinstance(result, ToolSuccess), result
    return result.value


def code(result: ToolResult) -> str | None:
    assert isinstance(result, ToolFailure), result
    return result.code
