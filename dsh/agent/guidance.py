"""Sections of the system prompt that explain a tool to those agents who have it."""

from dsh.agent.prompt import SYSTEM_PROMPT, PromptContext
from dsh.kernel import Context
from dsh.tools.registry import TOOLS


def explain_tool(ctx: Context, name: str, order: float, text: str) -> None:
    """Add section `tool:<name>` while there is a prompt; an agent reads it while it sees the tool.

    Args:
        ctx: of a row that injects `tools`.
        order: 100 to 199.
    """
    tools = ctx.use(TOOLS)

    def section(context: PromptContext) -> str | None:
        return text if tools.get(name, context.agent) is not None else None

    def add(inner: Context) -> None:
        inner.use(SYSTEM_PROMPT).section(f"tool:{name}", order, section)

    ctx.inject([SYSTEM_PROMPT], add)
