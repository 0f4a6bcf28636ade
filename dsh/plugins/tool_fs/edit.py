"""The tool `edit`: replace one piece of text in a file by another, literally."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dsh.capabilities.fs import FS, FS_EDIT_INTENT, FsEditIntent, FsEditRequest, FsIntent, Present
from dsh.kernel import Context, ScopeTarget
from dsh.plugins.tool_fs.access import FILE_PATH, escalation, explained, file_path, resolve, writes
from dsh.plugins.tool_fs.diff import file_diffs
from dsh.tools.definition import Args, ToolDefinition, ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolExecution
from dsh.tools.files import observe
from dsh.tools.typed import typed_tool

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

SECTION = (
    "`edit` finds `old_string` literally. Copy it from what `read` showed, without the line numbers, and "
    "take enough lines along that it occurs once."
)

_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string", "required": True},
        "before": {"type": "string", "required": True},
        "after": {"type": "string", "required": True},
        "note": {"type": "string"},
    },
}


DESCRIPTION = (
    "Replace text in a file. `old_string` is matched literally, white space and all, and must occur exactly "
    "once unless `replace_all` is true. Nothing else in the file changes. Read the file first: an edit of a "
    "file that was not read, or that has changed since, is refused."
)
_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "file_path": FILE_PATH,
    "old_string": {"type": "string", "required": True, "description": "The text to replace."},
    "new_string": {
        "type": "string",
        "required": True,
        "description": "What to put in its place; different from old_string, may be empty.",
    },
    "replace_all": {"type": "boolean", "description": "Replace every occurrence. Default false."},
}


def edit_tool(ctx: Context) -> ToolDefinition:
    """The definition of `edit` over the context's file system."""
    fs = ctx.use(FS)
    offer = escalation(fs)

    async def unconditional() -> FsEditIntent | None:
        return None

    async def execute(args: Args, execution: ToolExecution) -> dict[str, Any]:
        file_path(args)
        edit = _request(args)
        policy = await offer.policy_of(ctx, execution, args)
        target = await resolve(fs, args, execution, policy)
        with explained(offer, policy):
            intent = FsIntent(target, execution)
            subject = ScopeTarget(execution.agent)
            expected = await ctx.waterfall(FS_EDIT_INTENT, intent, unconditional, subject=subject)
            outcome = await fs.edit_text(
                target, edit, expected=expected, signal=execution.signal, sandbox_policy=policy
            )
        observe(ctx, execution, target, Present(outcome.version))
        value = {"path": target.display_path, "before": outcome.before, "after": outcome.after}
        return value | ({"note": outcome.note} if outcome.note else {})

    return typed_tool(
        name="edit",
        description=offer.description(DESCRIPTION),
        parameters=offer.parameters(_PARAMETERS),
        output=ToolOutput(_VALUE, _render, _meta),
        execute=execute,
        resources=writes(fs),
        present_call=_call_card,
        present_result=_result_card,
    )


def _request(args: Args) -> FsEditRequest:
    old, new = args["old_string"], args["new_string"]
    if not old:
        raise ToolError("old_string must not be empty")
    if old == new:
        raise ToolError("old_string and new_string must differ")
    return FsEditRequest(old, new, args.get("replace_all", False))


def _render(args: Args, value: Mapping[str, Any]) -> str:
    if args.get("replace_all", False):
        done = f"The file {value['path']} has been updated; every occurrence of old_string was replaced."
    else:
        done = f"The file {value['path']} has been updated successfully."
    return "\n".join([done, *([f"({value['note']})"] if "note" in value else [])])


def _meta(args: Args, value: Mapping[str, Any]) -> dict[str, Any]:
    return {"diffs": file_diffs(args["file_path"], value["before"], value["after"])}


def _call_card(args: Args) -> "CallCard":
    from dsh.plugins.tool_fs import card  # only displays need it

    return card.edit_call(args)


def _result_card(args: Args, outcome: "Outcome") -> "ResultCard | None":
    from dsh.plugins.tool_fs import card

    return card.change_result(args, outcome)
