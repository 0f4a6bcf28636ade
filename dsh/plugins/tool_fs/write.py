"""The tool `write`: create a file, or replace all of one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dsh.capabilities.fs import FS, FS_WRITE_INTENT, FsIntent, FsWriteIntent, Present
from dsh.kernel import Context, ScopeTarget
from dsh.plugins.tool_fs.access import FILE_PATH, escalation, explained, file_path, resolve, writes
from dsh.plugins.tool_fs.diff import file_diffs
from dsh.plugins.tool_fs.envelope import envelope
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.execution import ToolExecution
from dsh.tools.files import observe
from dsh.tools.typed import typed_tool

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

SECTION = (
    "`write` replaces a file as a whole. To change a part of an existing file use `edit`: it is cheaper and "
    "cannot lose the rest."
)

_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string", "required": True},
        "operation": {"type": "string", "enum": ["create", "update"], "required": True},
        "before": {"oneOf": [{"type": "string"}, {"type": "null"}], "required": True},
        "after": {"type": "string", "required": True},
        "note": {"type": "string"},
    },
}


DESCRIPTION = (
    "Write a text file: `content` becomes the whole file, byte for byte; parent directories are made. "
    "Whatever the file held before is gone, so read an existing file first (this is required) and prefer "
    "`edit` for small changes."
)
_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "file_path": FILE_PATH,
    "content": {"type": "string", "required": True, "description": "The complete new content."},
}


def write_tool(ctx: Context) -> ToolDefinition:
    """The definition of `write` over the context's file system."""
    fs = ctx.use(FS)
    offer = escalation(fs)

    async def unconditional() -> FsWriteIntent | None:
        return None

    async def execute(args: Args, execution: ToolExecution) -> dict[str, Any]:
        file_path(args)
        policy = await offer.policy_of(ctx, execution, args)
        target = await resolve(fs, args, execution, policy)
        with explained(offer, policy):
            intent = FsIntent(target, execution)
            subject = ScopeTarget(execution.agent)
            expected = await ctx.waterfall(FS_WRITE_INTENT, intent, unconditional, subject=subject)
            outcome = await fs.write_text(
                target, args["content"], expected=expected, signal=execution.signal, sandbox_policy=policy
            )
        observe(ctx, execution, target, Present(outcome.version))
        value = {
            "path": target.display_path,
            "operation": outcome.operation,
            "before": outcome.before,
            "after": outcome.after,
        }
        return value | ({"note": outcome.note} if outcome.note else {})

    return typed_tool(
        name="write",
        description=offer.description(DESCRIPTION),
        parameters=offer.parameters(_PARAMETERS),
        output=ToolOutput(_VALUE, _render, _meta),
        execute=execute,
        resources=writes(fs),
        present_call=_call_card,
        present_result=_result_card,
    )


def _render(args: Args, value: Mapping[str, Any]) -> str:
    done = "Created file" if value["operation"] == "create" else "Updated file"
    return envelope(value["path"], "\n".join([done, *([f"({value['note']})"] if "note" in value else [])]))


def _meta(args: Args, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"diffs": file_diffs(args["file_path"], value["before"], value["after"])}


def _call_card(args: Args) -> "CallCard":
    from dsh.plugins.tool_fs import card  # only displays need it

    return card.write_call(args)


def _result_card(args: Args, outcome: "Outcome") -> "ResultCard | None":
    from dsh.plugins.tool_fs import card

    return card.change_result(args, outcome)
