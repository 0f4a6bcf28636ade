"""Row `tools`, mounted."""

from typing import Any

import pytest

from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.plugins import tools as row
from dsh.tools.definition import TEXT_OUTPUT
from dsh.tools.registry import TOOLS
from dsh.tools.typed import typed_tool
from tests.aio import aio
from tests.tools.kit import call, text


@pytest.mark.parametrize("config", [None, {}, {"mode": "native"}, {"mode": None}, {"maxParallelSubCalls": 1}])
@aio
async def test_the_row_provides_the_registry(config: Any) -> None:
    ctx = Context()

    await ctx.plugin(row, config)

    assert ctx.get(TOOLS) is not None
    await ctx.dispose()
    assert ctx.get(TOOLS) is None


@pytest.mark.parametrize("mode", ["code", "both"])
@aio
async def test_code_modes_stop_the_start_with_the_remedy(mode: str) -> None:
    ctx = Context()

    with pytest.raises(CompositionError, match="code runtime") as failure:
        await ctx.plugin(row, {"mode": mode})

    assert "DSH_TOOLS_MODE" in failure.value.hint
    await ctx.dispose()


@pytest.mark.parametrize("config", [{"mode": "other"}, {"maxParallelSubCalls": 0}, {"more": 1}])
@aio
async def test_what_the_schema_refuses(config: Any) -> None:
    ctx = Context()

    with pytest.raises(CompositionError):
        await ctx.plugin(row, config)
    await ctx.dispose()


@aio
async def test_a_strangers_plugin_adds_a_tool() -> None:
    ctx = Context()
    await ctx.plugin(row)

    async def greet(args: Any, _: Any) -> str:
        return f"Hello, {args['who']}!"

    def plugin(inner: Context) -> None:
        inner.use(TOOLS).register(
            typed_tool(
                name="greet",
                description="Greet somebody.",
                parameters={"who": {"type": "string", "description": "Whom to greet.", "required": True}},
                output=TEXT_OUTPUT,
                execute=greet,
            )
        )

    await ctx.plugin(plugin, inject=[TOOLS])
    tools = ctx.get(TOOLS)
    assert tools is not None

    assert text(await tools.run(call("greet", {"who": "Ada"}))) == "Hello, Ada!"
    await ctx.dispose()
