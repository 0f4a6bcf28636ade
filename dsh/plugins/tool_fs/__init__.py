"""Row `tool-fs`: the tools `read`, `write` and `edit` over the file system service."""

from dsh.agent.prompt import SYSTEM_PROMPT, PromptContext, SectionText
from dsh.capabilities.fs import FS
from dsh.kernel import Context
from dsh.plugins.tool_fs import edit, read, write
from dsh.plugins.tool_fs.config import Config
from dsh.tools.registry import TOOLS, ToolRegistry

__all__ = ["Config", "apply", "inject"]

inject = [FS, TOOLS]

SECTIONS = (("read", 100, read.SECTION), ("write", 101, write.SECTION), ("edit", 102, edit.SECTION))


def apply(ctx: Context, config: Config) -> None:
    tools = ctx.use(TOOLS)
    tools.register(read.read_tool(ctx, config))
    tools.register(write.write_tool(ctx))
    tools.register(edit.edit_tool(ctx))

    def guide(inner: Context) -> None:
        prompt = inner.use(SYSTEM_PROMPT)
        for tool, order, text in SECTIONS:
            prompt.section(f"tool:{tool}", order, _while_visible(tools, tool, text))

    ctx.inject([SYSTEM_PROMPT], guide)


def _while_visible(tools: ToolRegistry, tool: str, text: str) -> SectionText:
    def section(context: PromptContext) -> str | None:
        return text if tools.get(tool, context.agent) is not None else None

    return section
