"""Whether walls can be had here, and stand-ins for the `sandbox` service where a test is not about them."""

import functools
import subprocess
from collections.abc import Sequence

import pytest

from dsh.capabilities import launcher
from dsh.capabilities.sandbox import (
    SANDBOX,
    BackendReport,
    Confined,
    Sandbox,
    SandboxMode,
    SandboxPolicy,
    SandboxUnavailable,
)
from dsh.kernel import Context
from dsh.plugins.sandbox.bwrap import profile


@functools.cache
def can_confine() -> bool:
    """Whether a run in the default mode starts on this machine."""
    walls = (
        ["bwrap", *profile(SandboxPolicy("read-only", "/"), cwd="/"), "--", "true"],
        launcher.command(["true"], readable=("/",)),
    )
    return any(_succeeds(argv) for argv in walls)


def _succeeds(argv: list[str]) -> bool:
    try:
        return subprocess.run(argv, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


needs_walls = pytest.mark.skipif(
    not can_confine(), reason="neither bubblewrap nor Landlock works here, so the default mode cannot be kept"
)


class NoSandbox:
    """Confines nothing, on a platform that has no way to do so, or one that has but none that works."""

    def __init__(self, *, has_backends: bool = False, keeps: bool = False) -> None:
        self.has_backends, self._keeps = has_backends, keeps

    async def confine(
        self,
        argv: Sequence[str],
        policy: SandboxPolicy,
        *,
        cwd: str | None = None,
        status_fd: int | None = None,
    ) -> Confined:
        raise SandboxUnavailable(f"nothing confines {policy.mode} here")

    async def require(self, mode: SandboxMode) -> None:
        if mode != "danger-full-access" and not self._keeps:
            raise SandboxUnavailable(f"no sandbox here can keep mode {mode!r}", hint="install one")

    async def chosen(self, mode: SandboxMode) -> str:
        raise SandboxUnavailable(f"nothing confines {mode} here")

    def doubt(self) -> None:
        raise AssertionError("no command has run")

    async def backends(self) -> list[BackendReport]:
        return []


def no_sandbox(ctx: Context) -> None:
    """A row that provides the platform without backends."""
    service: Sandbox = NoSandbox()
    ctx.provide(SANDBOX, service)


def any_sandbox(ctx: Context) -> None:
    """A row that provides a platform where every mode is promised, and no command can run."""
    service: Sandbox = NoSandbox(has_backends=True, keeps=True)
    ctx.provide(SANDBOX, service)


def broken_sandbox(ctx: Context) -> None:
    """A row that provides a platform with a backend that does not work."""
    service: Sandbox = NoSandbox(has_backends=True)
    ctx.provide(SANDBOX, service)
