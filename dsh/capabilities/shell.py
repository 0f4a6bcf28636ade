"""Running shell commands as a service: what is asked, what comes back (`spec/capabilities-core.md` §9)."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from dsh.capabilities.sandbox import SandboxMode, SandboxPolicy
from dsh.errors import DshError
from dsh.kernel import CancelToken, ServiceKey


class SandboxUnavailable(DshError):
    """The policy asks for confinement that nothing here can give. The command was not run."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, code="SANDBOX_UNAVAILABLE", hint=hint)


class ShellRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One command. What is unset is filled in by the provider."""

    command: str
    workdir: str | None = None
    """Absolute."""
    timeout_ms: float | None = None
    """Clamped to the provider's cap."""
    env: Mapping[str, str | None] = msgspec.field(default_factory=dict)
    dsh_env: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Managed `DSH_*` variables; they win over everything."""
    sandbox_policy: SandboxPolicy | None = None
    signal: CancelToken | None = None


class StreamText(msgspec.Struct, frozen=True):
    """What one stream printed: all of it, or its tail."""

    text: str
    truncated: bool
    spill_path: str | None = None


class SandboxReport(msgspec.Struct, frozen=True):
    """Under which mode a command ran, and whether the sandbox stopped something."""

    mode: SandboxMode
    denied: bool = False


class ShellResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended. A non-zero exit is a result, not an error.

    Neither code nor signal: it could not be killed.
    """

    exit_code: int | None
    signal: str | None
    timed_out: bool
    aborted: bool
    timeout_ms: int
    stdout: StreamText
    stderr: StreamText
    sandbox: SandboxReport | None = None
    left_running: bool = False
    """Processes of the command live on in the background."""
    detached: bool = False
    """A process that the command moved to a session of its own lives on; nobody will end it."""


class Shell(Protocol):
    """The shell service."""

    @property
    def sandbox_mode(self) -> SandboxMode | None:
        """The default mode of a provider that confines, None of one that does not."""

    async def run(self, request: ShellRequest) -> ShellResult:
        """Run one command in a fresh shell and wait for it.

        Raises:
            SpawnError: the shell or its directory is missing.
            SandboxUnavailable: the policy cannot be kept.
        """


SHELL: ServiceKey[Shell] = ServiceKey("shell")
