"""A tool as a plugin of its own: mount it with `dsh run --patch greet.yml "Greet Ada"`."""

from dsh.tools.registry import TOOLS
from dsh.tools.typed import TEXT_OUTPUT, typed_tool

inject = [TOOLS]


async def greet(args, call):
    return f"Hello, {args['who']}!"


def apply(ctx):
    ctx.use(TOOLS).register(
        typed_tool(
            name="greet",
            description="Greet somebody by name.",
            parameters={"who": {"type": "string", "description": "Whom to greet.", "required": True}},
            output=TEXT_OUTPUT,
            execute=greet,
        )
    )
