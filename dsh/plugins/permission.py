"""Row `permission`: named pairs of sandbox mode and approval policy, written into each new session's log."""

import msgspec

from dsh.capabilities.approval import APPROVAL, ApprovalPolicy
from dsh.capabilities.sandbox import SANDBOX_POLICY, SandboxMode
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.session.log import Session
from dsh.session.store import SESSION_CREATED

inject = [SANDBOX_POLICY, APPROVAL]

DERIVED_NAME = "custom"
"""What a pair is called that no preset has; not a preset itself."""


class Preset(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """One named pair."""

    sandbox: SandboxMode
    approval: ApprovalPolicy
    name: str | None = None
    """Shown instead of the table's key."""
    description: str | None = None


SHIPPED = {
    "read-only": Preset(sandbox="read-only", approval="ask"),
    "workspace-write": Preset(sandbox="workspace-write", approval="ask"),
    "danger-full-access": Preset(sandbox="danger-full-access", approval="never"),
}


class Config(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """Options of the row."""

    presets: dict[str, Preset] = msgspec.field(default_factory=lambda: dict(SHIPPED))
    """By name, in order; the first that matches a pair names it."""
    default_preset: str | None = None
    """For new sessions; unset: the entry with the composed sandbox mode and approval policy."""

    def __post_init__(self) -> None:
        if DERIVED_NAME in self.presets:
            raise ValueError(f"presets: the name {DERIVED_NAME!r} is reserved")


class Presets:
    """The table, and the default of this composition."""

    def __init__(self, table: dict[str, Preset], default: str) -> None:
        self._table, self._default = table, default

    def matching(self, sandbox: str, approval: str) -> str | None:
        """The first preset with this pair."""
        return match(self._table, sandbox, approval)

    def pin(self, session: Session) -> None:
        """Log what the session's log does not say yet: preset, sandbox mode, approval policy, in that order.

        What it does say, in a seed for instance, stays: the missing half of a pair comes from the preset
        it names, else from the default, and a pair without a name gets none.
        """
        chosen = session.last("permission/preset")
        mode_event, policy_event = session.last("sandbox/mode"), session.last("approval/policy")
        base = self._table.get(self._default if chosen is None else chosen.data["preset"])
        base = base or self._table[self._default]
        mode = base.sandbox if mode_event is None else mode_event.data["mode"]
        policy = base.approval if policy_event is None else policy_event.data["policy"]
        if chosen is None:
            is_fresh = mode_event is None and policy_event is None
            preset = self._default if is_fresh else self.matching(mode, policy)
            if preset is not None:
                session.append("permission/preset", {"preset": preset})
        if mode_event is None:
            session.append("sandbox/mode", {"mode": mode})
        if policy_event is None:
            session.append("approval/policy", {"policy": policy})


def match(table: dict[str, Preset], sandbox: str, approval: str) -> str | None:
    """The first entry with this pair."""
    pair = (sandbox, approval)
    return next((name for name, entry in table.items() if (entry.sandbox, entry.approval) == pair), None)


def apply(ctx: Context, config: Config) -> None:
    mode = ctx.use(SANDBOX_POLICY).default_mode
    policy = ctx.use(APPROVAL).policy_of(None)
    names = ", ".join(config.presets) or "none"
    default = config.default_preset or match(config.presets, mode, policy)
    if default is None:
        raise CompositionError(
            f"row 'permission': no preset has sandbox {mode!r} with approval {policy!r} (presets: {names})",
            hint="add such a preset, set defaultPreset, or choose both at once with DSH_PERMISSION_MODE",
        )
    if default not in config.presets:
        raise CompositionError(
            f"row 'permission': defaultPreset {default!r} is not a preset", hint=f"presets: {names}"
        )
    ctx.on(SESSION_CREATED, Presets(config.presets, default).pin)
