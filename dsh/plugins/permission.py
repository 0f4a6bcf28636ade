"""Row `permission`: named pairs of sandbox mode and approval policy, written into each new session's log."""

import msgspec

from dsh.capabilities.approval import APPROVAL, ApprovalPolicy
from dsh.capabilities.sandbox import SANDBOX_POLICY, SandboxMode
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.session.log import Session
from dsh.session.store import SESSION_CREATED

inject = [SANDBOX_POLICY, APPROVAL]
provide = ()

DERIVED_NAME = "custom"
"""What a pair is called that no preset has; not a preset itself."""


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

    def pin(self, session: Session) -> None:
        """Log what the session's log does not say yet: preset, sandbox mode, approval policy, in that order.

        What it does say, in a seed for instance, stays: the missing half of a pair comes from the preset
        it names, else from the default, and a pair without a name gets none.
        """
        chosen = logged(session, "permission/preset", "preset")
        mode, policy = logged(session, "sandbox/mode", "mode"), logged(session, "approval/policy", "policy")
        base = self._table.get(chosen or self._default, self._table[self._default])
        if chosen is None:
            pair = (base.sandbox if mode is None else mode, base.approval if policy is None else policy)
            is_fresh = mode is None and policy is None
            preset = self._default if is_fresh else match(self._table, *pair)
            if preset is not None:
                session.append("permission/preset", {"preset": preset})
        if mode is None:
            session.append("sandbox/mode", {"mode": base.sandbox})
        if policy is None:
            session.append("approval/policy", {"policy": base.approval})


def logged(session: Session, kind: str, key: str) -> str | None:
    """What the last event of a kind says, None where there is none; a damaged one says nothing usable."""
    event = session.last(kind)
    if event is None:
        return None
    value = event.data.get(key) if isinstance(event.data, dict) else None
    return value if isinstance(value, str) else ""


def match(table: dict[str, Preset], sandbox: str, approval: str) -> str | None:
    """The first entry with this pair."""
    pair = (sandbox, approval)
    return next((name for name, entry in table.items() if (entry.sandbox, entry.approval) == pair), None)


def apply(ctx: Context, config: Config) -> None:
    sandbox = ctx.use(SANDBOX_POLICY)
    mode = sandbox.default_mode
    policy = ctx.use(APPROVAL).policy_of(None)
    names = ", ".join(config.presets) or "none"
    default = config.default_preset or match(config.presets, mode, policy)
    if default is None:
        raise CompositionError(
            f"no preset has sandbox {mode!r} with approval {policy!r} (presets: {names})",
            hint="add such a preset, set defaultPreset, or choose both at once with DSH_PERMISSION_MODE",
        )
    if default not in config.presets:
        raise CompositionError(f"defaultPreset {default!r} is not a preset", hint=f"presets: {names}")
    if (chosen := config.presets[default].sandbox) not in sandbox.supported_modes:
        raise CompositionError(
            f"preset {default!r} asks for sandbox mode {chosen!r}, which cannot be kept",
            hint=f"modes that can: {', '.join(sandbox.supported_modes)}",
        )
    ctx.on(SESSION_CREATED, Presets(config.presets, default).pin)
