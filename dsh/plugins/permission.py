"""Row `permission`: named pairs of sandbox mode and approval policy, written into each new session's log."""

from collections.abc import Callable

import msgspec

from dsh.capabilities.approval import APPROVAL, ApprovalPolicy
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.capabilities.sandbox import SANDBOX_POLICY, SandboxMode
from dsh.capabilities.settings_section import install_settings_section
from dsh.errors import CompositionError
from dsh.kernel import Context, ServiceKey, ValidationError
from dsh.session.log import Session
from dsh.session.store import SESSION_CREATED

inject = [SANDBOX_POLICY, APPROVAL]
PRESETS: ServiceKey["Presets"] = ServiceKey("permission")
"""Provided so that there is one: of two tables the first that sees a new session decides."""

provide = [PRESETS]

MODE_VARIABLE = "DSH_PERMISSION_MODE"
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


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The settings section `permission`."""

    default_preset: str | None = None
    """For new sessions, over that of the row; `DSH_PERMISSION_MODE` outranks it."""


sections = {"permission": Section}


class Presets:
    """The table, and the default, which is asked for with each session."""

    def __init__(self, table: dict[str, Preset], default: Callable[[], str]) -> None:
        self._table, self._default_now = table, default

    def pin(self, session: Session) -> None:
        """Log what the session's log does not say yet: preset, sandbox mode, approval policy, in that order.

        What it does say, in a seed for instance, stays: the missing half of a pair comes from the preset
        it names, else from the default, and a pair without a name gets none.
        """
        chosen = logged(session, "permission/preset", "preset")
        mode, policy = logged(session, "sandbox/mode", "mode"), logged(session, "approval/policy", "policy")
        default = self._default_now()
        base = self._table.get(chosen or default, self._table[default])
        if chosen is None:
            pair = (base.sandbox if mode is None else mode, base.approval if policy is None else policy)
            is_fresh = mode is None and policy is None
            preset = default if is_fresh else match(self._table, *pair)
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


class Choice:
    """Which preset new sessions get: by variable, settings, row or composed pair, in this order."""

    def __init__(self, ctx: Context, config: Config) -> None:
        """Raises `CompositionError` where variable, row and composition give none that can be kept."""
        self._ctx, self._table = ctx, config.presets
        self._sandbox = ctx.use(SANDBOX_POLICY)
        mode, policy = self._sandbox.default_mode, ctx.use(APPROVAL).policy_of(None)
        composed = match(config.presets, mode, policy)
        self._by_variable = composed if self._variable() == mode else None
        default = self._by_variable or config.default_preset or composed
        if default is None:
            raise CompositionError(
                f"no preset has sandbox {mode!r} with approval {policy!r} (presets: {self._names})",
                hint="add such a preset, set defaultPreset, or choose both at once with DSH_PERMISSION_MODE",
            )
        self._check(default)
        self._default = default
        self._section = install_settings_section(ctx, "permission", Section, Section(), validate=self._judge)

    def now(self) -> str:
        """The default of this moment."""
        return self._by_variable or self._section.get().default_preset or self._default

    @property
    def _names(self) -> str:
        return ", ".join(self._table) or "none"

    def _variable(self) -> str:
        """What the launching environment chose; a mode that a patch has made fixed is not its choice."""
        environment = self._ctx.get(LAUNCH_ENVIRONMENT)
        found = environment.get_from(MODE_VARIABLE, ("process",)) if environment is not None else None
        return found.value if found is not None else ""

    def _judge(self, section: Section) -> None:
        if section.default_preset is None:
            return
        if found := self._problem(section.default_preset):
            raise ValidationError(found[0], "defaultPreset", hint=found[1])

    def _check(self, name: str) -> None:
        if found := self._problem(name):
            raise CompositionError(f"defaultPreset: {found[0]}", hint=found[1])

    def _problem(self, name: str) -> tuple[str, str] | None:
        """Why this cannot be the default, and what can."""
        if name not in self._table:
            return f"{name!r} is not a preset", f"presets: {self._names}"
        if (chosen := self._table[name].sandbox) not in self._sandbox.supported_modes:
            modes = ", ".join(self._sandbox.supported_modes)
            return (
                f"preset {name!r} asks for sandbox mode {chosen!r}, which cannot be kept",
                f"modes that can: {modes}",
            )
        return None


def apply(ctx: Context, config: Config) -> None:
    presets = Presets(config.presets, Choice(ctx, config).now)
    ctx.provide(PRESETS, presets)
    ctx.on(SESSION_CREATED, presets.pin)
