"""What a session may change on the machine: the policy every file and process capability asks for, and the
service that confines commands to it."""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from dsh.errors import DshError
from dsh.kernel import ServiceKey
from dsh.session.log import Session

SandboxMode = Literal["read-only", "workspace-write", "danger-full-access"]
SANDBOX_MODES: tuple[SandboxMode, ...] = ("read-only", "workspace-write", "danger-full-access")
"""From the narrowest to the widest."""


class SandboxPolicy(msgspec.Struct, frozen=True):
    """What one call runs under."""

    mode: SandboxMode
    workspace_root: str
    """Absolute and canonical."""
    session_id: str | None = None
    temp_folder: str | None = None
    """The session's own temporary folder: writable in `workspace-write`, and its `TMPDIR` in every mode."""
    extra_roots: tuple[str, ...] = ()
    """More directories that `workspace-write` may change; absolute and canonical."""
    is_network_open: bool = True
    """False: confined commands have no network."""
    hidden_paths: tuple[str, ...] = ()
    """What the confined modes may not even read; absolute and canonical, with all that lies below."""
    protected_paths: tuple[str, ...] = ()
    """What `workspace-write` may not change in its roots, beside what is always protected there."""


class SandboxPolicyService(Protocol):
    """Decides a call's policy: approved mode, else the session's last `sandbox/mode`, else the default."""

    @property
    def default_mode(self) -> SandboxMode: ...

    @property
    def supported_modes(self) -> tuple[SandboxMode, ...]:
        """What the composition can keep; choosing another mode is refused at the start."""

    def resolve(self, session: Session | None = None, mode: SandboxMode | None = None) -> SandboxPolicy: ...


SANDBOX_POLICY: ServiceKey[SandboxPolicyService] = ServiceKey("sandboxPolicy")

Enforcement = Literal["full", "partial"]


class SandboxUnavailable(DshError):
    """The policy asks for confinement that nothing here can give. The command was not run."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, code="SANDBOX_UNAVAILABLE", hint=hint)


StatusKind = Literal["bwrap", "launcher", "none"]
"""What a runner writes into the status pipe: bubblewrap's JSON, our launcher's word, or nothing."""


class Confined(msgspec.Struct, frozen=True, kw_only=True):
    """A command line that keeps a policy, and how to tell afterwards what became of it.

    `dsh.capabilities.confined_end` reads the facts.
    """

    argv: tuple[str, ...]
    enforcement: Enforcement
    runner: str
    """The backend: `bwrap`, `landlock`, or the program of the configured runner."""
    status: StatusKind = "none"
    denial_signatures: tuple[str, ...] = ()
    """Parts of standard error, in lower case, that show that the sandbox refused something."""
    failure_signatures: tuple[str, ...] = ()
    """Parts of a line, in lower case, by which a runner without a status pipe says that it failed."""
    dies_with_parent: bool = True
    """The runner sees to it itself that all ends when this program dies."""
    ends_children: bool = False
    """Processes that a command leaves in the background end with it."""


class BackendReport(msgspec.Struct, frozen=True):
    """One way to confine commands, and whether it works here."""

    name: str
    enforcement: Enforcement | None
    """None: it does not work."""
    reason: str = ""
    """Why it does not, or what is missing of a full one."""
    hint: str = ""


class Sandbox(Protocol):
    """Confines command lines. Never answers one that is less confined than its policy."""

    async def confine(
        self,
        argv: Sequence[str],
        policy: SandboxPolicy,
        *,
        cwd: str | None = None,
        status_fd: int | None = None,
    ) -> Confined:
        """The command line that runs `argv` under `policy`, whose mode is not `danger-full-access`.

        Args:
            cwd: where it will run; unset: the workspace.
            status_fd: the writing end of a pipe that the child will inherit under this number.

        Raises:
            SandboxUnavailable: no backend works here; the message names the mode and what to install.
        """

    @property
    def has_backends(self) -> bool:
        """Whether there is a way to confine on this platform at all, working or not."""

    async def require(self, mode: SandboxMode) -> None:
        """At the start: make sure that commands can be confined to a mode.

        Raises:
            SandboxUnavailable: they cannot, and the composition wants to know it at the start.
        """

    async def chosen(self, mode: SandboxMode) -> str:
        """The name of the backend that keeps a confined mode.

        Raises: as `confine`.
        """

    def doubt(self) -> None:
        """The chosen backend has failed a command: try all of them anew before the next one."""

    async def backends(self) -> Sequence[BackendReport]:
        """Every backend of this platform in the order of choice, each one tried now."""


SANDBOX: ServiceKey[Sandbox] = ServiceKey("sandbox")
