"""Plugin `tool-note`: the tool `note`, over the notebook."""

import msgspec

from dsh.kernel import Context
from dsh.tools.registry import TOOLS
from dsh.tools.typed import TEXT_OUTPUT, typed_tool
from dsh_notes.contract import NOTEBOOK

inject = [NOTEBOOK, TOOLS]
provide = []


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    first: str | None = None
    """A note that is there from the start."""


def apply(ctx: Context, config: Config) -> None:
    notebook = ctx.use(NOTEBOOK)
    if config.first is not None:
        notebook.add(config.first)

    async def note(args, execution):
        notebook.add(args["text"])
        return "\n".join(f"- {text}" for text in notebook.all())

    ctx.use(TOOLS).register(
        typed_tool(
            name="note",
            description="Take a note. Answers all notes.",
            parameters={"text": {"type": "string", "description": "What to remember.", "required": True}},
            output=TEXT_OUTPUT,
            execute=note,
        )
    )
