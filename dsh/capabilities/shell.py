"""Running shell commands as a service: what is asked, what comes back (`spec/capabilities-core.md` §9)."""

from collections.abc import Awaitable, Mapping
from typing import Literal, Protocol

import msgspec

from dsh.capabilities.sandbox import Enforcement, SandboxMode, SandboxPolicy
from dsh.kernel import CancelToken, ServiceKey


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
    stdin: bytes | None = None
    """What the command reads; unset: nothing, at once at its end."""
    max_output_bytes: int | None = None
    """Kept of each stream in memory; unset: what the provider is set to."""


class StreamText(msgspec.Struct, frozen=True):
    """What one stream printed: all of it, or its tail."""

    text: str
    truncated: bool
    spill_path: str | None = None
    printed: str = ""
    """The same as it was printed, terminal control and bytes that are no text included."""


class SandboxReport(msgspec.Struct, frozen=True):
    """Under which mode a command ran, and whether the sandbox stopped something."""

    mode: SandboxMode
    denied: bool = False
    enforcement: Enforcement | None = None
    """None where nothing is confined."""


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
    ended_children: bool = False
    """The command left processes in the background, and the sandbox has ended them with it."""


ShellStatus = Literal["running", "completed", "killed", "failed"]


class ShellDelta(msgspec.Struct, frozen=True):
    """What a background command printed since an offset."""

    text: str
    next_stdout: int
    next_stderr: int
    """Where the next read starts, in bytes of each whole stream."""
    lossy: bool
    stdout_spill_path: str | None = None
    stderr_spill_path: str | None = None


class ShellProcess(Protocol):
    """A command that runs in the background, without a limit of time."""

    @property
    def status(self) -> ShellStatus:
        """`failed`: it could not be started or confined; a death by signal is `killed`."""

    @property
    def exit_code(self) -> int | None: ...

    @property
    def signal(self) -> str | None: ...

    @property
    def sandbox(self) -> SandboxReport | None:
        """Known once it has ended."""

    @property
    def failure(self) -> str | None:
        """Why it is `failed`."""

    @property
    def done(self) -> Awaitable[None]:
        """Ends with the command; never raises."""

    def read_from(self, stdout: int, stderr: int) -> ShellDelta:
        """What was printed since the two offsets, standard error under `[stderr]`; consumes nothing."""

    def kill(self) -> None:
        """End it and its group. Idempotent."""


class Shell(Protocol):
    """The shell service."""

    @property
    def sandbox_mode(self) -> SandboxMode | None:
        """The default mode of a provider that confines, None of one that does not."""

    async def run(self, request: ShellRequest) -> ShellResult:
        """Run one command in a fresh shell and wait for it.

        Raises:
            SpawnError: the shell or its directory is missing.
            SandboxUnavailable: the policy cannot be kept (`dsh.capabilities.sandbox`).
        """

    async def start(self, request: ShellRequest) -> ShellProcess:
        """Start one command and return at once. Its timeout and its signal do not count.

        Raises: as `run`. What shows only after the start makes the process `failed`.
        """


SHELL: ServiceKey[Shell] = ServiceKey("shell")
