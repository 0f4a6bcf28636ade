"""The tool `read`: a window of numbered lines of a text file."""

from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

from dsh.capabilities.fs import FS, Absent, FileSystem, FsError, FsInfo, FsTarget, Present
from dsh.capabilities.sandbox import SandboxPolicy
from dsh.kernel import CancelToken, Context
from dsh.plugins.tool_fs.access import (
    FILE_PATH,
    NO_ESCALATION,
    explained,
    resolve,
)
from dsh.plugins.tool_fs.config import Config
from dsh.plugins.tool_fs.envelope import envelope
from dsh.plugins.tool_fs.language import language_of
from dsh.plugins.tool_fs.window import Limits, Window, WindowBuilder
from dsh.tools.definition import Args, Resources, ToolDefinition, ToolOutput
from dsh.tools.error import ToolError
from dsh.tools.execution import ToolCall, ToolExecution
from dsh.tools.files import observe, reading_policy, resource_key
from dsh.tools.typed import typed_tool

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard, Outcome, ResultCard

COUNTED_CHARS = 64 * 1024 * 1024
"""How far a large file is read on after its window is complete, to tell the exact number of lines."""

SECTION = (
    "Read files with `read` rather than with shell commands such as `cat`, `head` or `sed`: its lines are "
    "numbered, and a file must have been read before `edit` or `write` may change it."
)

_LINE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "number": {"type": "integer", "required": True},
        "text": {"type": "string", "required": True},
    },
}
_VALUE = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "path": {"type": "string", "required": True},
        "offset": {"type": "integer", "required": True},
        "lines": {"type": "array", "items": _LINE, "required": True},
        "totalLines": {"type": "integer", "required": True},
        "totalIsMinimum": {"type": "boolean", "description": "Present and true: there may be more lines."},
    },
}


class _File(NamedTuple):
    fs: FileSystem
    target: FsTarget
    policy: SandboxPolicy | None


def read_tool(ctx: Context, config: Config) -> ToolDefinition:
    """The definition of `read` over the context's file system."""
    fs = ctx.use(FS)

    async def execute(args: Args, execution: ToolExecution) -> dict[str, Any]:
        offset, limit = _position(args, "offset", 1), _position(args, "limit", config.read_limit)
        if limit > config.read_limit:
            raise ToolError(f"limit must not be above {config.read_limit}, got {limit}")
        target = await resolve(fs, args, execution)
        policy = reading_policy(ctx, fs, execution)
        with explained(NO_ESCALATION, policy):
            info = await fs.stat(target, signal=execution.signal, sandbox_policy=policy)
        if info is None:
            observe(ctx, execution, target, Absent())
            raise FsError("FS_NOT_FOUND", f'cannot read "{target.display_path}": not found')
        if info.type != "file":
            raise _not_a_file(target, info)
        limits = Limits(limit, config.read_max_line_length, config.read_max_bytes)
        builder = WindowBuilder(offset, limits)
        is_exact = await _fill(
            builder, _File(fs, target, policy), execution.signal, is_large=_is_large(info, config)
        )
        window = builder.finish()
        if offset > window.total_lines and (offset, window.total_lines) != (1, 0):
            raise _past_the_end(target, offset, window)
        observe(ctx, execution, target, Present(info.version))
        return _value(target, offset, window, is_exact=is_exact)

    def resources(args: Args, call: ToolCall) -> Resources | None:
        key = resource_key(fs, args["file_path"], call.cwd)
        return Resources(reads=frozenset({key})) if key else Resources()

    return typed_tool(
        name="read",
        description=_description(config),
        parameters={
            "file_path": FILE_PATH,
            "offset": {"type": "number", "description": "First line to show, counted from 1. Default 1."},
            "limit": {
                "type": "number",
                "description": f"How many lines to show, at most {config.read_limit}, which is the default.",
            },
        },
        output=ToolOutput(_VALUE, lambda args, value: _render(args, value, config), _meta),
        execute=execute,
        concurrency_safe=True,
        resources=resources,
        present_call=_call_card,
        present_result=_result_card,
    )


def _description(config: Config) -> str:
    return (
        "Read a UTF-8 text file and return its lines with their numbers. Without `offset` and `limit` it "
        f"shows up to {config.read_limit} lines or {config.read_max_bytes} bytes from the start; the last "
        "line of the result says whether more follows and at which offset. Use `offset` and `limit` to page "
        "through large files. Prefer this over `cat` in a shell. Binary files, directories and other "
        "encodings are refused."
    )


def _position(args: Args, name: str, default: int) -> int:
    value = args.get(name, default)
    if value != int(value) or value < 1:
        raise ToolError(f"{name} must be a positive integer, got {value}")
    return int(value)


def _is_large(info: FsInfo, config: Config) -> bool:
    return info.size is None or info.size >= config.read_stream_min_size


async def _fill(
    builder: WindowBuilder,
    file: "_File",
    signal: CancelToken,
    *,
    is_large: bool,
) -> bool:
    """Feed the file to the builder. False where counting stopped before the end of a large file."""
    fs, target, policy = file.fs, file.target, file.policy
    if not is_large:
        builder.feed(await fs.read_text(target, signal=signal, sandbox_policy=policy))
        return True
    counted = 0
    async with aclosing(fs.stream_text(target, signal=signal, sandbox_policy=policy)) as pieces:
        async for piece in pieces:
            if builder.has_more and counted >= COUNTED_CHARS:
                return False
            builder.feed(piece)
            counted += len(piece)
    return True


def _not_a_file(target: FsTarget, info: FsInfo) -> FsError:
    what = (
        "it is a directory; use glob to see what is in it"
        if info.type == "directory"
        else "not a regular file"
    )
    return FsError("FS_NOT_REGULAR_FILE", f'cannot read "{target.display_path}": {what}')


def _past_the_end(target: FsTarget, offset: int, window: Window) -> FsError:
    total = window.total_lines
    lines = "1 line" if total == 1 else f"{total} lines"
    return FsError(
        "FS_NOT_FOUND", f'cannot read "{target.display_path}" from line {offset}: the file has {lines}'
    )


def _value(target: FsTarget, offset: int, window: Window, *, is_exact: bool) -> dict[str, Any]:
    value: dict[str, Any] = {
        "path": target.display_path,
        "offset": offset,
        "lines": [{"number": line.number, "text": line.text} for line in window.lines],
        "totalLines": window.total_lines,
    }
    return value if is_exact else {**value, "totalIsMinimum": True}


def _meta(args: Args, value: Mapping[str, Any]) -> dict[str, Any]:
    language = language_of(value["path"])
    return {**value, "lang": language} if language else dict(value)


def _render(args: Args, value: Mapping[str, Any], config: Config) -> str:
    lines = [f"{line['number']}: {line['text']}" for line in value["lines"]]
    footer = _footer(value, int(args.get("limit", config.read_limit)), config)
    return envelope(value["path"], "\n".join([*lines, "", footer] if lines else [footer]))


def _footer(value: Mapping[str, Any], limit: int, config: Config) -> str:
    total, lines = value["totalLines"], value["lines"]
    last = lines[-1]["number"] if lines else total
    if last >= total:
        return f"(End of file - total {total} lines)"
    shown = f"Showing lines {value['offset']}-{last}"
    more = f"Use offset={last + 1} to continue.)"
    if len(lines) < limit:
        return f"({shown}; a page holds at most {config.read_max_bytes} bytes. {more}"
    return f"({shown} of {'at least ' if value.get('totalIsMinimum') else ''}{total}. {more}"


def _call_card(args: Args) -> "CallCard":
    from dsh.plugins.tool_fs import card  # only displays need it

    return card.read_call(args)


def _result_card(args: Args, outcome: "Outcome") -> "ResultCard | None":
    from dsh.plugins.tool_fs import card

    return card.read_result(args, outcome)
