"""What tools that touch files share.

Where a path starts, its key for the scheduler, the policy of a read, and who is told.
"""

import os

from dsh.capabilities.fs import FS_OBSERVED, FileSystem, FsError, FsObservation, FsObserved, FsTarget
from dsh.capabilities.sandbox import SANDBOX_POLICY, SandboxPolicy
from dsh.kernel import Context, ScopeTarget
from dsh.tools.execution import ToolExecution


def base_directory(path: str, cwd: str | None) -> str | None:
    """Where a relative path starts. With a `..` in play, where the system would be after entering `cwd`."""
    if cwd is None or ".." not in (*path.split("/"), *cwd.split("/")):
        return cwd
    return os.path.realpath(cwd)


def resource_key(fs: FileSystem, path: str, cwd: str | None) -> str | None:
    """The scheduler's key of the file that a path means; None where it means nothing."""
    try:
        return f"fs:{fs.target_of(path, base_directory(path, cwd)).target_key}"
    except FsError:
        return None


def reading_policy(ctx: Context, fs: FileSystem, execution: ToolExecution) -> SandboxPolicy | None:
    """The policy of the session, for what it hides; None where the provider does not confine."""
    return session_policy(ctx, execution) if fs.sandbox_mode is not None else None


def session_policy(ctx: Context, execution: ToolExecution) -> SandboxPolicy | None:
    """The policy of the session; None where there are none."""
    service = ctx.get(SANDBOX_POLICY)
    return service.resolve(execution.session) if service is not None else None


def observe(ctx: Context, execution: ToolExecution, target: FsTarget, seen: FsObservation) -> None:
    """Tell that this call has seen the file. What a listener raises fails the call."""
    ctx.emit(FS_OBSERVED, FsObserved(target, seen, execution), subject=ScopeTarget(execution.agent))
