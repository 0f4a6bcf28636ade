"""Row `fs-sandbox`: this machine's files, writes fenced by the session's sandbox policy.

Reads are free, but for what the policy hides.
"""

from dsh.capabilities.fs import (
    FS,
    FsEditIntent,
    FsEditOutcome,
    FsEditRequest,
    FsError,
    FsTarget,
    FsWriteIntent,
    FsWriteOutcome,
)
from dsh.capabilities.local_fs.fence import is_hidden, may_change
from dsh.capabilities.local_fs.provider import FsConfig, LocalFileSystem
from dsh.capabilities.local_fs.thread import Halt, off_loop
from dsh.capabilities.sandbox import SANDBOX_POLICY, SandboxMode, SandboxPolicy, SandboxPolicyService
from dsh.kernel import CancelToken, Context

inject = [SANDBOX_POLICY]
provide = [FS]
Config = FsConfig


class SandboxedFileSystem(LocalFileSystem):
    """Asks the policy before each mutation. Implements `dsh.capabilities.fs.FileSystem`."""

    def __init__(self, config: FsConfig, policy: SandboxPolicyService) -> None:
        super().__init__(config)
        self._policy = policy

    @property
    def sandbox_mode(self) -> SandboxMode:
        return self._policy.default_mode

    async def write_text(
        self,
        target: FsTarget,
        content: str,
        *,
        expected: FsWriteIntent | None = None,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> FsWriteOutcome:
        policy = sandbox_policy or self._policy.resolve()
        admitted = await self._admit(target, policy, "write", signal)
        return await self._write(admitted, content, expected, signal, keep_links=_keeps_links(policy))

    async def edit_text(
        self,
        target: FsTarget,
        edit: FsEditRequest,
        *,
        expected: FsEditIntent | None = None,
        signal: CancelToken | None = None,
        sandbox_policy: SandboxPolicy | None = None,
    ) -> FsEditOutcome:
        policy = sandbox_policy or self._policy.resolve()
        admitted = await self._admit(target, policy, "edit", signal)
        return await self._edit(admitted, edit, expected, signal, keep_links=_keeps_links(policy))

    def _admit_read(self, target: FsTarget, policy: SandboxPolicy | None, action: str) -> None:
        policy = policy or self._policy.resolve()
        if is_hidden(policy, target.target_key):
            raise FsError(
                "FS_SANDBOX_DENIED",
                f'cannot {action} "{target.display_path}": it is hidden by the sandbox policy',
            )

    async def _admit(
        self, target: FsTarget, policy: SandboxPolicy, action: str, signal: CancelToken | None
    ) -> FsTarget:
        """The target to mutate: resolved anew, so that what is checked is what is written.

        Raises:
            FsError: `FS_SANDBOX_DENIED`.
        """
        if policy.mode == "danger-full-access":
            return target
        shown = target.display_path

        def resolve() -> FsTarget | None:
            if policy.mode != "workspace-write":
                return None
            fresh = self.target_of(shown)
            return fresh if may_change(policy, fresh.target_key) else None

        admitted = await off_loop(resolve, Halt(signal, action, shown))
        if admitted is None:
            raise FsError("FS_SANDBOX_DENIED", f'cannot {action} "{shown}": denied under {policy.mode} mode')
        return admitted


def _keeps_links(policy: SandboxPolicy) -> bool:
    """Writing in place reaches a file's other names, which may lie outside the fence."""
    return policy.mode == "danger-full-access"


def apply(ctx: Context, config: FsConfig) -> None:
    ctx.provide(FS, SandboxedFileSystem(config, ctx.use(SANDBOX_POLICY)))
