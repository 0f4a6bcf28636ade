"""Row `tool-fs-search`: the tools `glob` and `grep`, over ripgrep as a child process."""

from dsh.capabilities.subprocess import SUBPROCESS
from dsh.kernel import Context
from dsh.plugins.tool_fs_search.config import Config
from dsh.plugins.tool_fs_search.glob import glob_listing, glob_tool
from dsh.plugins.tool_fs_search.grep import grep_listing, grep_tool
from dsh.plugins.tool_fs_search.program import SearchProgram
from dsh.plugins.tool_fs_search.saving import Saver
from dsh.tools.event import TOOLS_POST_EXECUTE
from dsh.tools.registry import TOOLS

__all__ = ["Config", "apply", "inject", "provide"]

inject = [SUBPROCESS, TOOLS]
provide = ()


def apply(ctx: Context, config: Config) -> None:
    register(ctx, SearchProgram(ctx.use(SUBPROCESS), config), config)


def register(ctx: Context, program: SearchProgram, config: Config) -> None:
    """Add the two tools, and what keeps their long lists."""
    tools = ctx.use(TOOLS)
    tools.register(glob_tool(ctx, program, config))
    tools.register(grep_tool(ctx, program, config))
    saver = Saver(ctx, {"glob": glob_listing(config), "grep": grep_listing(config)})
    ctx.on(TOOLS_POST_EXECUTE, saver.saved)
