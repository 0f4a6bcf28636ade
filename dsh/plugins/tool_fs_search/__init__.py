"""Row `tool-fs-search`: the tools `glob` and `grep`, over ripgrep as a child process."""

from dsh.capabilities.subprocess import SUBPROCESS
from dsh.kernel import Context
from dsh.plugins.tool_fs_search.config import Config
from dsh.plugins.tool_fs_search.glob import glob_tool
from dsh.plugins.tool_fs_search.grep import grep_tool
from dsh.plugins.tool_fs_search.program import SearchProgram
from dsh.tools.registry import TOOLS

__all__ = ["Config", "apply", "inject", "provide"]

inject = [SUBPROCESS, TOOLS]
provide = ()


def apply(ctx: Context, config: Config) -> None:
    program = SearchProgram(ctx.use(SUBPROCESS), config)
    tools = ctx.use(TOOLS)
    tools.register(glob_tool(program, config))
    tools.register(grep_tool(program, config))
