"""Row `sandbox`: confines command lines to a session's policy, by the first backend that works here.

On Linux that is bubblewrap, else Landlock. There is no way from here to an unconfined command: what cannot
be confined is refused (`spec/capabilities-core.md` §11).
"""

import asyncio
import sys
from collections.abc import Sequence

import msgspec

from dsh.capabilities.bounds import TimerMs
from dsh.capabilities.sandbox import (
    SANDBOX,
    BackendReport,
    Confined,
    SandboxMode,
    SandboxPolicy,
    SandboxUnavailable,
)
from dsh.capabilities.subprocess import SUBPROCESS
from dsh.kernel import Context
from dsh.plugins.sandbox.backend import Backend, Prober
from dsh.plugins.sandbox.bwrap import Bwrap
from dsh.plugins.sandbox.landlock import Landlock
from dsh.plugins.sandbox.runner import ConfiguredRunner

__all__ = ["Config", "apply", "inject", "provide"]

inject = [SUBPROCESS]
provide = [SANDBOX]

NOT_RUN = "; the command was not run"


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    probe_timeout_ms: TimerMs = 5000
    """How long a backend may take to show that it works."""
    require_full: bool = False
    """Refuse a backend that keeps a policy only in part, such as Landlock."""
    check_at_start: bool = True
    """Whether a mode that no backend can keep stops the start; else only the commands are refused."""
    runner_command: list[str] = []
    """A program of your own in place of the backends, with its first arguments; it gets those of
    bubblewrap, then `--` and the command. It is not tried, and counts as keeping the policy in full.
    """
    runner_failure_signatures: list[str] = []
    """Parts of a line of standard error by which that program says that it failed itself. Goes with
    `runnerCommand`.
    """

    def __post_init__(self) -> None:
        if bool(self.runner_command) != bool(self.runner_failure_signatures):
            raise ValueError("runnerCommand and runnerFailureSignatures go together: set both or neither")
        if self.runner_command and not self.runner_command[0].strip():
            raise ValueError("runnerCommand: the first word is blank, expected a program")
        for words in self.runner_failure_signatures:
            if not words.strip() or "\n" in words:
                raise ValueError("runnerFailureSignatures: each must be part of one line and not blank")


class SandboxService:
    """Chooses a backend at the first need. Implements `dsh.capabilities.sandbox.Sandbox`."""

    def __init__(self, config: Config, prober: Prober, backends: Sequence[Backend] | None = None) -> None:
        """`backends` in the order of choice; unset: those of the configuration and the platform."""
        self._backends = tuple(backends_of(config) if backends is None else backends)
        self._prober = prober
        self._config = config
        self._chosen: Backend | None = None
        self._choosing = asyncio.Lock()

    async def confine(
        self,
        argv: Sequence[str],
        policy: SandboxPolicy,
        *,
        cwd: str | None = None,
        status_fd: int | None = None,
    ) -> Confined:
        if policy.mode == "danger-full-access":
            raise SandboxUnavailable(f"nothing is confined under danger-full-access{NOT_RUN}")
        try:
            backend = await self._choice(policy.mode)
        except SandboxUnavailable as error:
            raise SandboxUnavailable(error.message + NOT_RUN, hint=error.hint) from None
        return backend.confine(argv, policy, cwd=cwd, status_fd=status_fd)

    @property
    def has_backends(self) -> bool:
        return bool(self._backends)

    async def require(self, mode: SandboxMode) -> None:
        if mode != "danger-full-access" and self._config.check_at_start:
            await self._choice(mode)

    async def chosen(self, mode: SandboxMode) -> str:
        """The name of the backend that keeps a mode.

        Raises: as `confine`.
        """
        return (await self._choice(mode)).name

    def doubt(self) -> None:
        self._chosen = None

    async def backends(self) -> list[BackendReport]:
        return [await backend.probe(self._prober) for backend in self._backends]

    async def _choice(self, mode: SandboxMode) -> Backend:
        async with self._choosing:
            if self._chosen is not None:
                return self._chosen
            reports = []
            for backend in self._backends:
                report = await backend.probe(self._prober)
                if report.enforcement == "full" or (report.enforcement and not self._config.require_full):
                    self._chosen = backend
                    return backend
                reports.append(report)
        raise _unavailable(mode, reports)


def _unavailable(mode: SandboxMode, reports: Sequence[BackendReport]) -> SandboxUnavailable:
    if not reports:
        return SandboxUnavailable(
            f"no sandbox for mode {mode!r} exists on this platform ({sys.platform})",
            hint="run it unconfined by DSH_PERMISSION_MODE=danger-full-access, or on Linux",
        )
    tried = "; ".join(
        f"{report.name}: {f'only partial, {report.reason}' if report.enforcement else report.reason}"
        for report in reports
    )
    advice = next((report.hint for report in reports if report.hint), "")
    unconfined = "run unconfined by DSH_PERMISSION_MODE=danger-full-access"
    return SandboxUnavailable(
        f"no sandbox here can keep mode {mode!r} ({tried})",
        hint=f"{advice}, or {unconfined}" if advice else unconfined,
    )


def backends_of(config: Config) -> tuple[Backend, ...]:
    """The backends in the order of choice."""
    if config.runner_command:
        return (ConfiguredRunner(config.runner_command, config.runner_failure_signatures),)
    return (Bwrap(), Landlock()) if sys.platform == "linux" else ()


def apply(ctx: Context, config: Config) -> None:
    prober = Prober(ctx.use(SUBPROCESS), config.probe_timeout_ms)
    ctx.provide(SANDBOX, SandboxService(config, prober))
