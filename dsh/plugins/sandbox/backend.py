"""What a way to confine commands is to the `sandbox` row, and how one is tried."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import msgspec

from dsh.capabilities.confined_end import StatusPipe
from dsh.capabilities.sandbox import BackendReport, Confined, SandboxPolicy
from dsh.capabilities.subprocess import Collect, SpawnError, SpawnSpec, Subprocess
from dsh.kernel import CancelToken

GRACE_MS = 200
KEPT_BYTES = 16_384


class Trial(msgspec.Struct, frozen=True):
    """How a trial command ended."""

    status: bytes
    exit_code: int | None
    stdout: str
    stderr: str

    @property
    def words(self) -> str:
        """The first line of what was complained of."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return lines[0] if lines else ""


class Prober:
    """Runs trial commands through the subprocess service, each within a bound of time."""

    def __init__(self, subprocess: Subprocess, timeout_ms: int) -> None:
        self._subprocess = subprocess
        self._timeout_ms = timeout_ms

    @property
    def timeout_ms(self) -> int:
        return self._timeout_ms

    async def run(self, argv: Sequence[str], pipe: StatusPipe) -> Trial | None:
        """The end of the command; None when it took too long."""
        token = CancelToken()
        limits = Collect(KEPT_BYTES)
        spec = SpawnSpec(
            argv=argv,
            cwd="/",
            stdout=limits,
            stderr=limits,
            grace_ms=GRACE_MS,
            signal=token,
            pass_fds=(pipe.fd,),
            dies_with_parent=False,
        )
        try:
            process = self._subprocess.spawn(spec)
        except SpawnError as error:
            return Trial(b"", None, "", error.message)
        pipe.close_writing()
        timer = asyncio.get_running_loop().call_later(self._timeout_ms / 1000, token.cancel, "too slow")
        try:
            end = await process.finish()
        finally:
            timer.cancel()
        if token.cancelled:
            return None
        return Trial(pipe.read(), end.exit_code, process.stdout.read().text, process.stderr.read().text)


class Backend(Protocol):
    """One way to confine commands."""

    @property
    def name(self) -> str: ...

    async def probe(self, prober: Prober) -> BackendReport:
        """Try it for real. A report without an enforcement means that it cannot be used."""

    def confine(
        self, argv: Sequence[str], policy: SandboxPolicy, *, cwd: str | None, status_fd: int | None
    ) -> Confined:
        """The command line. Only after a probe that succeeded.

        Raises:
            SandboxUnavailable: this backend cannot keep this policy.
        """
