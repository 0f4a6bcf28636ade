"""The rows of the file tools, mounted on a real kernel over a real directory, with a call in one line."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from dsh.capabilities.fs import FS, FileSystem
from dsh.capabilities.sandbox import (
    SANDBOX_MODES,
    SANDBOX_POLICY,
    SandboxMode,
    SandboxPolicy,
    SandboxPolicyService,
)
from dsh.kernel import CancelToken, Context
from dsh.plugins import fs_local, fs_observation_policy, tool_fs, tools
from dsh.session.header import SessionHeader
from dsh.session.log import Session
from dsh.tools.execution import ToolCall, ToolFailure, ToolResult
from dsh.tools.registry import TOOLS

PLAIN: tuple[tuple[ModuleType, dict[str, Any]], ...] = (
    (fs_local, {}),
    (fs_observation_policy, {}),
    (tool_fs, {}),
)


class Owner:
    """What tools know of an agent."""

    def __init__(self, ctx: Context, cwd: str | None) -> None:
        self.id = "agent"
        self.ctx = ctx
        self.session = Session(SessionHeader(id="s", created_at=1, cwd=cwd))


class FixedPolicy:
    """A sandbox policy that can be set. Implements `SandboxPolicyService`."""

    def __init__(self, mode: SandboxMode, root: str) -> None:
        self.default_mode: SandboxMode = mode
        self.supported_modes = SANDBOX_MODES
        self.root = os.path.realpath(root)

    def resolve(self, session: Session | None = None, mode: SandboxMode | None = None) -> SandboxPolicy:
        return SandboxPolicy(mode or self.default_mode, self.root)


class Kit:
    """The mounted rows and one agent in the workspace."""

    def __init__(self, ctx: Context, workspace: Path) -> None:
        self.ctx, self.workspace = ctx, workspace
        self.owner = Owner(ctx, str(workspace))

    @property
    def fs(self) -> FileSystem:
        fs = self.ctx.get(FS)
        assert fs is not None
        return fs

    async def run(
        self, tool: str, /, *, owner: Owner | None = None, signal: CancelToken | None = None, **arguments: Any
    ) -> ToolResult:
        registry = self.ctx.get(TOOLS)
        assert registry is not None
        call = ToolCall(
            call_id="c-1",
            name=tool,
            arguments=arguments,
            agent=owner or self.owner,
            signal=signal or CancelToken(),
        )
        return await registry.run(call)

    async def text(self, tool: str, /, **arguments: Any) -> str:
        """The result's text, as the model sees it, with the workspace shown as /ws."""
        return text_of(await self.run(tool, **arguments)).replace(str(self.workspace), "/ws")

    async def code(self, tool: str, /, **arguments: Any) -> str | None:
        """The code of a call that must fail; None for a failure without one."""
        result = await self.run(tool, **arguments)
        assert isinstance(result, ToolFailure), text_of(result)
        return result.code

    async def meta(self, tool: str, /, **arguments: Any) -> Any:
        result = await self.run(tool, **arguments)
        assert not result.is_error, text_of(result)
        return None if result.meta is msgspec.UNSET else result.meta


def text_of(result: ToolResult) -> str:
    return "\n".join(str(block["text"]) for block in result.content)


@asynccontextmanager
async def mounted(
    workspace: Path,
    rows: tuple[tuple[ModuleType, dict[str, Any]], ...] = PLAIN,
    *,
    policy: FixedPolicy | None = None,
) -> AsyncIterator[Kit]:
    """Mount the tool registry, the policy if given, and the rows; undo it all at the end."""
    ctx = Context()
    try:
        await ctx.plugin(tools)
        if policy is not None:
            service: SandboxPolicyService = policy
            ctx.provide(SANDBOX_POLICY, service)
        for row, config in rows:
            await ctx.plugin(row, config)
        yield Kit(ctx, workspace)
    finally:
        await ctx.dispose()
