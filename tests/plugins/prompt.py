"""What the prompt tells the model of the facts that rows contribute, through the real prompt row."""

import asyncio
from typing import Any

from dsh.agent.prompt import SYSTEM_PROMPT, PromptContext
from dsh.kernel import Context
from dsh.plugins import system_prompt, tools


async def told(ctx: Context, agent: Any) -> dict[str, str]:
    """The runtime-context sections by name, in order. Mounts the prompt row where it is not."""
    if ctx.get(SYSTEM_PROMPT) is None:
        await ctx.plugin(tools)
        await ctx.plugin(system_prompt)
        for _ in range(10):
            await asyncio.sleep(0)
    prompt = ctx.get(SYSTEM_PROMPT)
    assert prompt is not None
    assembly = await prompt.assemble(PromptContext(agent=agent))
    return {section.name: section.text for section in assembly.context}
