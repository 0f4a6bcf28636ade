"""The rows that are interchangeable by one line of a patch, each mounted the way a profile mounts it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from dsh.kernel import Context
from dsh.plugins import bash_local, bash_sandbox, fs_local, fs_sandbox, sandbox, sandbox_policy, subprocess

FILE_SYSTEMS: tuple[ModuleType, ...] = (fs_local, fs_sandbox)
SHELLS: tuple[ModuleType, ...] = (bash_local, bash_sandbox)


@asynccontextmanager
async def provider(row: ModuleType, config: dict[str, Any] | None = None) -> AsyncIterator[Context]:
    """A context with the row, full access, and what it stands on."""
    ctx = Context()
    try:
        await ctx.plugin(subprocess)
        await ctx.plugin(sandbox)
        await ctx.plugin(sandbox_policy, {"mode": "danger-full-access"})
        await ctx.plugin(row, config or {})
        yield ctx
    finally:
        await ctx.dispose()
