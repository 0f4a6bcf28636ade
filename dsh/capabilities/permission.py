"""Permission presets: named pairs of sandbox mode and approval policy, as a person chooses them."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from dsh.capabilities.agent import TellableAgent
from dsh.capabilities.approval import ApprovalPolicy
from dsh.capabilities.sandbox import SandboxMode
from dsh.errors import DshError
from dsh.kernel import ServiceKey
from dsh.session.log import Session

CUSTOM = "custom"
"""What a pair is called that no preset has; not a preset itself, and never chosen."""


class PresetError(DshError):
    """A preset that is not there (`UNKNOWN_PRESET`) or cannot be kept (`UNSUPPORTED_MODE`)."""


class Preset(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """One named pair."""

    sandbox: SandboxMode
    """The sandbox mode that the session begins with."""
    approval: ApprovalPolicy
    """Whether what the mode forbids may be asked for."""
    name: str | None = None
    """Shown instead of the table's key."""
    description: str | None = None
    """One line about it, for lists."""


class Permissions(Protocol):
    """The presets of one composition, and which one a session has (`spec/tools.md` §7)."""

    @property
    def table(self) -> Mapping[str, Preset]:
        """By key, in order."""

    @property
    def default(self) -> str:
        """What a session gets that begins now."""

    def effective(self, session: Session) -> str:
        """The key of the chosen preset if its pair holds, else the first with the pair, else `custom`."""

    def choose(self, agent: TellableAgent, key: str) -> bool:
        """Give a live agent's session a preset: logged first, then what changes of the pair.

        Answers whether anything changed; the effective preset is not logged again.

        Raises:
            PresetError: no such preset, or its sandbox mode cannot be kept.
            ApprovalError: the agent has ended.
        """


PERMISSIONS: ServiceKey[Permissions] = ServiceKey("permission")
"""Provided so that there is one: of two tables the first that sees a new session decides."""
