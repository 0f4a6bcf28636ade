"""What a session may change on the machine: the policy every file and process capability asks for."""

from typing import Literal, Protocol

import msgspec

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


class SandboxPolicyService(Protocol):
    """Decides a call's policy: approved mode, else the session's last `sandbox/mode`, else the default."""

    @property
    def default_mode(self) -> SandboxMode: ...

    @property
    def supported_modes(self) -> tuple[SandboxMode, ...]:
        """What the composition can keep; choosing another mode is refused at the start."""

    def resolve(self, session: Session | None = None, mode: SandboxMode | None = None) -> SandboxPolicy: ...


SANDBOX_POLICY: ServiceKey[SandboxPolicyService] = ServiceKey("sandboxPolicy")
