"""The tool `str_replace_editor`: its parameters, its four commands, and in which order each refuses."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from dsh.capabilities.fs import (
    FS,
    FS_EDIT_INTENT,
    FS_WRITE_INTENT,
    Absent,
    CreateIfAbsent,
    FileSystem,
    FsEditIntent,
    FsEditRequest,
    FsError,
    FsInfo,
    FsIntent,
    FsTarget,
    FsWriteIntent,
    FsWriteOutcome,
    Present,
    ReplaceIfVersion,
)
from dsh.capabilities.local_fs.splice import insert_lines, splice
from dsh.capabilities.sandbox import SandboxPolicy
from dsh.kernel import Context, ScopeTarget
from dsh.plugins.tool_str_replace_editor.config import Config
from dsh.plugins.tool_str_replace_editor.view import NumberedLines, checked_range, directory_view, file_view
from dsh.tools.definition import TEXT_OUTPUT, Args, Resources, ToolDefinition
from dsh.tools.error import ToolError
from dsh.tools.escalation import Escalation
from dsh.tools.execution import ToolCall, ToolExecution
from dsh.tools.files import base_directory, observe, reading_policy, resource_key
from dsh.tools.typed import typed_tool

if TYPE_CHECKING:
    from dsh.tools.presentation import CallCard

NAME = "str_replace_editor"
DESCRIPTION = (
    "View, create and change text files by absolute path. `view` shows the numbered lines of a file (a part "
    "of them with view_range) or what is in a directory, two levels deep. `create` makes a new file of "
    "file_text; the file must not exist. `str_replace` replaces old_str, which must occur exactly once and "
    "match exactly, by new_str. `insert` puts new_str behind line insert_line. View a file before you "
    "change it."
)
_PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "command": {
        "type": "string",
        "enum": ["view", "create", "str_replace", "insert"],
        "required": True,
        "description": "What to do.",
    },
    "path": {"type": "string", "required": True, "description": "Absolute path of the file or directory."},
    "file_text": {"type": "string", "description": "For create: the complete content."},
    "insert_line": {"type": "integer", "description": "For insert: the line to insert behind; 0 is the top."},
    "new_str": {
        "type": "string",
        "description": "For str_replace: the new text, nothing when left out. For insert: the new lines.",
    },
    "old_str": {"type": "string", "description": "For str_replace: the text to replace."},
    "view_range": {
        "type": "array",
        "items": {"type": "integer"},
        "description": "For view of a file: first and last line, counted from 1; -1 is the end.",
    },
}
_DENIED = Escalation("operation", is_offered=False)


class _Call(msgspec.Struct, frozen=True, eq=False):
    """One call, once its path is known to mean something."""

    ctx: Context
    fs: FileSystem
    config: Config
    args: Args
    execution: ToolExecution
    target: FsTarget
    policy: SandboxPolicy | None

    @property
    def shown(self) -> str:
        return self.target.display_path

    def required(self, name: str) -> Any:
        """A parameter that this command needs.

        Raises:
            ToolError: it is not there.
        """
        value = self.args.get(name)
        if value is None:
            raise ToolError(f"parameter {name} is required for command {self.args['command']}")
        return value

    async def info(self) -> FsInfo | None:
        return await self.fs.stat(self.target, signal=self.execution.signal, sandbox_policy=self.policy)

    async def file(self, intent: FsEditIntent | None = None) -> FsInfo:
        """What the file is, in the version of the intent if there is one.

        Raises:
            FsError: `FS_NOT_FOUND`, `FS_NOT_REGULAR_FILE`, `FS_STALE_VERSION`.
        """
        info = await self.info()
        if info is None:
            observe(self.ctx, self.execution, self.target, Absent())
            raise FsError("FS_NOT_FOUND", f'"{self.shown}" does not exist')
        if info.type != "file":
            what = "a directory" if info.type == "directory" else "no regular file"
            raise FsError("FS_NOT_REGULAR_FILE", f'"{self.shown}" is {what}')
        if intent is not None and intent.version != info.version:
            raise FsError("FS_STALE_VERSION", f'"{self.shown}" has changed since it was read')
        return info

    async def intent_to_edit(self) -> FsEditIntent | None:
        async def unconditional() -> FsEditIntent | None:
            return None

        intent = FsIntent(self.target, self.execution)
        subject = ScopeTarget(self.execution.agent)
        return await self.ctx.waterfall(FS_EDIT_INTENT, intent, unconditional, subject=subject)

    async def text(self) -> str:
        return await self.fs.read_text(self.target, signal=self.execution.signal, sandbox_policy=self.policy)

    async def write(self, text: str, expected: FsWriteIntent) -> FsWriteOutcome:
        outcome = await self.fs.write_text(
            self.target,
            text,
            expected=expected,
            signal=self.execution.signal,
            sandbox_policy=self.policy,
        )
        observe(self.ctx, self.execution, self.target, Present(outcome.version))
        return outcome


def editor_tool(ctx: Context, config: Config) -> ToolDefinition:
    """The definition of `str_replace_editor` over the context's file system."""
    fs = ctx.use(FS)

    async def execute(args: Args, execution: ToolExecution) -> str:
        path = _absolute(args["path"])
        target = await fs.resolve(path, base_directory(path, execution.cwd), signal=execution.signal)
        policy = reading_policy(ctx, fs, execution)
        with _denials(policy):
            return await _COMMANDS[args["command"]](_Call(ctx, fs, config, args, execution, target, policy))

    def resources(args: Args, call: ToolCall) -> Resources | None:
        key = resource_key(fs, args["path"], call.cwd)
        keys = frozenset({key} if key else ())
        return Resources(reads=keys) if args["command"] == "view" else Resources(writes=keys)

    return typed_tool(
        name=NAME,
        description=config.description or DESCRIPTION,
        parameters=_PARAMETERS,
        output=TEXT_OUTPUT,
        execute=execute,
        resources=resources,
        present_call=_call_card,
    )


async def _view(call: _Call) -> str:
    asked = _range(call.args.get("view_range"))
    info = await call.info()
    limit = call.config.max_output_chars
    if info is not None and info.type == "directory":
        if asked is not None:
            raise ToolError("view_range is for files; a directory is shown without it")
        return await directory_view(call.fs, call.target, call.policy, call.execution.signal, limit)
    info = await call.file()
    first, last = asked or (1, -1)
    lines = NumberedLines(first, None if last == -1 else last, limit)
    pieces = call.fs.stream_text(call.target, signal=call.execution.signal, sandbox_policy=call.policy)
    async with aclosing(pieces):
        async for piece in pieces:
            lines.feed(piece)
    checked_range(asked, lines.total)
    observe(call.ctx, call.execution, call.target, Present(info.version))
    return file_view(call.shown, lines, asked, limit)


async def _create(call: _Call) -> str:
    text = call.required("file_text")
    there = await call.info() or await call.fs.lstat(call.shown, signal=call.execution.signal)
    if there is not None:
        raise ToolError(f'"{call.shown}" exists already; command create makes new files only')

    async def only_new() -> FsWriteIntent | None:
        return CreateIfAbsent()

    intent, subject = FsIntent(call.target, call.execution), ScopeTarget(call.execution.agent)
    expected = await call.ctx.waterfall(FS_WRITE_INTENT, intent, only_new, subject=subject)
    outcome = await call.write(text, expected or CreateIfAbsent())
    return _done(f"File created: {call.shown}", outcome)


async def _str_replace(call: _Call) -> str:
    intent = await call.intent_to_edit()
    old, new = call.required("old_str"), call.args.get("new_str") or ""
    if not old:
        raise ToolError("old_str must not be empty")
    info = await call.file(intent)
    edit = FsEditRequest(old, new)
    text = splice(await call.text(), edit, call.shown, name="old_str", with_lines=True)
    outcome = await call.write(text, ReplaceIfVersion(info.version))
    return _done(f"File changed: {call.shown}", outcome)


async def _insert(call: _Call) -> str:
    line, new = call.required("insert_line"), call.required("new_str")
    intent = await call.intent_to_edit()
    info = await call.file(intent)
    text = await call.text()
    lines = text.count("\n") + 1
    if not 0 <= line <= lines:
        raise ToolError(f"insert_line must be between 0 and {lines}, the lines of the file, got {line}")
    outcome = await call.write(insert_lines(text, line, new), ReplaceIfVersion(info.version))
    return _done(f"File changed: {call.shown}", outcome)


_COMMANDS: Mapping[str, Callable[[_Call], Awaitable[str]]] = {
    "view": _view,
    "create": _create,
    "str_replace": _str_replace,
    "insert": _insert,
}


def _absolute(path: str) -> str:
    if not path.strip():
        raise ToolError("path must not be blank")
    if not path.startswith("/"):
        raise ToolError(f'path must be absolute, got "{path}"; perhaps "/{path.removeprefix("./")}" is meant')
    return path


def _range(asked: Any) -> tuple[int, int] | None:
    """Raises `ToolError` for what is no pair of lines."""
    if asked is None:
        return None
    if len(asked) != 2:
        raise ToolError(f"view_range must be two integers, first and last line, got {len(asked)}")
    first, last = asked
    return first, last


@contextlib.contextmanager
def _denials(policy: SandboxPolicy | None) -> Iterator[None]:
    """Mark what the sandbox refused. The code stays."""
    try:
        yield
    except FsError as error:
        if error.fs_code == "FS_SANDBOX_DENIED" and policy is not None:
            raise FsError(error.fs_code, f"{error.message}\n{_DENIED.denial(policy.mode)}") from error
        raise


def _done(text: str, outcome: FsWriteOutcome) -> str:
    return f"{text}\n({outcome.note})" if outcome.note else text


def _call_card(args: Args) -> "CallCard":
    from dsh.plugins.tool_str_replace_editor import card  # only displays need it

    return card.call(args)
