"""Row `tool-fs`: the tools `read`, `write` and `edit` over the file system service."""

from dsh.agent.guidance import explain_tool
from dsh.capabilities.fs import FS
from dsh.kernel import Context
from dsh.plugins.tool_fs import edit, read, write
from dsh.plugins.tool_fs.config import Config
from dsh.tools.registry import TOOLS

__all__ = ["Config", "apply", "inject", "provide"]

inject = [FS, TOOLS]
provide = ()

SECTIONS = (("read", 100, read.SECTION), ("write", 101, write.SECTION), ("edit", 102, edit.SECTION))


def apply(ctx: Context, config: Config) -> None:
    tools = ctx.use(TOOLS)
    tools.register(read.read_tool(ctx, config))
    tools.register(write.write_tool(ctx))
    tools.register(edit.edit_tool(ctx))
    for tool, order, text in SECTIONS:
        explain_tool(ctx, tool, order, text)
