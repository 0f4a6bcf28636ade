"""What the three file tools share: which file a call means, which policy it runs under, who is told."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dsh.capabilities.fs import (
    FS_OBSERVED,
    FileSystem,
    FsError,
    FsObservation,
    FsObserved,
    FsTarget,
)
from dsh.capabilities.sandbox import SandboxPolicy
from dsh.kernel import Context, ScopeTarget
from dsh.tools.definition import Args, Resources
from dsh.tools.error import ToolError
from dsh.tools.escalation import Escalation
from dsh.tools.execution import ToolCall, ToolExecution

SUBJECT = "operation"
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


def base_directory(path: str, cwd: str | None) -> str | None:
    """Where a relative path starts. With a `..` in play, where the system would be after entering `cwd`."""
    if cwd is None or ".." not in (*path.split("/"), *cwd.split("/")):
        return cwd
    return os.path.realpath(cwd)


async def resolve(
    fs: FileSystem,
    args: Args,
    execution: ToolExecution,
    policy: SandboxPolicy | None = None,
) -> FsTarget:
    """The file a call means: relative to the policy's workspace, else to the session's directory."""
    path = file_path(args)
    cwd = policy.workspace_root if policy is not None else execution.cwd
    return await fs.resolve(path, base_directory(path, cwd), signal=execution.signal)


def resource_key(fs: FileSystem, args: Args, call: ToolCall) -> str | None:
    """The scheduler's key of the file a call means; None where the path means nothing."""
    path: str = args["file_path"]
    try:
        return f"fs:{fs.target_of(path, base_directory(path, call.cwd)).target_key}"
    except FsError:
        return None


def writes(fs: FileSystem) -> Callable[[Args, ToolCall], Resources | None]:
    """The resources of a tool that changes the file in `file_path`."""

    def resources(args: Args, call: ToolCall) -> Resources | None:
        key = resource_key(fs, args, call)
        return Resources(writes=frozenset({key})) if key else Resources()

    return resources


def observe(ctx: Context, execution: ToolExecution, target: FsTarget, seen: FsObservation) -> None:
    """Tell that this call has seen the file. What a listener raises fails the call."""
    ctx.emit(FS_OBSERVED, FsObserved(target, seen, execution), subject=ScopeTarget(execution.agent))


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
