"""What the three file tools share: which file a call means, and which policy it runs under."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dsh.capabilities.fs import FileSystem, FsError, FsTarget
from dsh.capabilities.sandbox import SandboxPolicy
from dsh.tools.definition import Args, Resources
from dsh.tools.error import ToolError
from dsh.tools.escalation import Escalation
from dsh.tools.execution import ToolCall, ToolExecution
from dsh.tools.files import base_directory, resource_key

SUBJECT = "operation"
NO_ESCALATION = Escalation(SUBJECT, is_offered=False)
"""Of tools that only read."""
FILE_PATH: Mapping[str, Any] = {
    "type": "string",
    "required": True,
    "description": "Path of the file, absolute or relative to the working directory.",
}
"""The parameter that all three have."""

_REMEDIES = {
    "FS_STALE_VERSION": "re-read the file, then retry",
    "FS_NOT_OBSERVED": "read the file, then retry",
}


def file_path(args: Args) -> str:
    """The path argument.

    Raises:
        ToolError: it is blank.
    """
    path: str = args["file_path"]
    if not path.strip():
        raise ToolError("file_path must not be blank")
    return path


async def resolve(
    fs: FileSystem,
    args: Args,
    execution: ToolExecution,
    policy: SandboxPolicy | None = None,
) -> FsTarget:
    """The file a call means: relative to the policy's workspace, else to the session's directory.

    Raises:
        FsError: `FS_NOT_FOUND`, also where that directory is gone: a write would make it anew.
    """
    path = file_path(args)
    cwd = policy.workspace_root if policy is not None else execution.cwd
    _require_start(path, cwd)
    return await fs.resolve(path, base_directory(path, cwd), signal=execution.signal)


def _require_start(path: str, cwd: str | None) -> None:
    if cwd is not None and not path.startswith("/") and not os.path.isdir(cwd):
        raise FsError(
            "FS_NOT_FOUND", f'cannot resolve "{path}": the working directory "{cwd}" does not exist any more'
        )


def writes(fs: FileSystem) -> Callable[[Args, ToolCall], Resources | None]:
    """The resources of a tool that changes the file in `file_path`."""

    def resources(args: Args, call: ToolCall) -> Resources | None:
        key = resource_key(fs, args["file_path"], call.cwd)
        return Resources(writes=frozenset({key})) if key else Resources()

    return resources


def escalation(fs: FileSystem) -> Escalation:
    """What the tools that change files offer over this provider."""
    return Escalation(SUBJECT, fs.sandbox_mode is not None)


@contextlib.contextmanager
def explained(offer: Escalation, policy: SandboxPolicy | None) -> Iterator[None]:
    """Add to a refusal what the model can do about it. The code stays."""
    try:
        yield
    except FsError as error:
        if remedy := _REMEDIES.get(error.fs_code):
            raise FsError(error.fs_code, f"{error.message} — {remedy}") from error
        if error.fs_code == "FS_SANDBOX_DENIED" and policy is not None:
            raise FsError(error.fs_code, f"{error.message}\n{offer.denial(policy.mode)}") from error
        raise
