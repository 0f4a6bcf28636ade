"""Row `permission`: named pairs of sandbox mode and approval policy, written into each new session's log.

A person changes the pair of a live session with `/permission NAME`, where commands are mounted.
"""

from collections.abc import Callable

import msgspec

from dsh.agent.liveness import is_live
from dsh.capabilities.approval import APPROVAL, Approval
from dsh.capabilities.commands import COMMANDS
from dsh.capabilities.launch import LAUNCH_ENVIRONMENT
from dsh.capabilities.permission import CUSTOM, PERMISSIONS, Preset, PresetError
from dsh.capabilities.sandbox import SANDBOX, SANDBOX_POLICY, SandboxPolicyService, SandboxUnavailable
from dsh.capabilities.settings_section import install_settings_section
from dsh.errors import CompositionError
from dsh.kernel import Context, ValidationError
from dsh.plugins.permission.command import permission_command
from dsh.plugins.permission.presets import Presets, entry_of, match
from dsh.session.store import SESSION_CREATED

inject = [SANDBOX_POLICY, APPROVAL]
provide = [PERMISSIONS]

NAMESPACE = "permission"
MODE_VARIABLE = "DSH_PERMISSION_MODE"
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
        if CUSTOM in self.presets:
            raise ValueError(f"presets: the name {CUSTOM!r} is reserved")
        if self.default_preset is not None and self.default_preset not in self.presets:
            names = ", ".join(self.presets) or "none"
            raise ValueError(f"defaultPreset: {self.default_preset!r:.60} is not a preset (presets: {names})")


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The settings section `permission`."""

    default_preset: str | None = None
    """For new sessions, over that of the row; `DSH_PERMISSION_MODE` outranks it."""


sections = {NAMESPACE: Section}


async def apply(ctx: Context, config: Config) -> None:
    sandbox, approval = ctx.use(SANDBOX_POLICY), ctx.use(APPROVAL)
    default = _default(ctx, config, sandbox, approval)
    if (confining := ctx.get(SANDBOX)) is not None:
        try:
            await confining.require(config.presets[default()].sandbox)
        except SandboxUnavailable as error:
            raise CompositionError(f"preset {default()!r}: {error.message}", hint=error.hint) from None
    presets = Presets(config.presets, default, sandbox, approval, lambda agent: is_live(ctx, agent))
    ctx.provide(PERMISSIONS, presets)
    ctx.on(SESSION_CREATED, presets.pin)

    def offer(inner: Context) -> None:
        inner.use(COMMANDS).register(permission_command(presets))

    ctx.inject([COMMANDS], offer)


def _default(
    ctx: Context, config: Config, sandbox: SandboxPolicyService, approval: Approval
) -> Callable[[], str]:
    """What tells the preset of new sessions: by variable, settings, row or composed pair, in this order.

    Raises:
        CompositionError: variable, row and composition give none, or one that cannot be kept.
    """
    mode, policy = sandbox.default_mode, approval.policy_of(None)
    composed = match(config.presets, mode, policy)
    by_variable = composed if _variable(ctx) == mode else None
    default = by_variable or config.default_preset or composed
    if default is None:
        names = ", ".join(config.presets) or "none"
        raise CompositionError(
            f"no preset has sandbox {mode!r} with approval {policy!r} (presets: {names})",
            hint="add such a preset, set defaultPreset, or choose both at once with DSH_PERMISSION_MODE",
        )

    def judge(section: Section) -> None:
        try:
            entry_of(config.presets, section.default_preset or default, sandbox.supported_modes)
        except PresetError as error:
            raise ValidationError(error.message, "defaultPreset", hint=error.hint) from None

    judge(Section())
    section = install_settings_section(ctx, NAMESPACE, Section, Section(), validate=judge)
    return lambda: by_variable or section.get().default_preset or default


def _variable(ctx: Context) -> str:
    """The mode that the launching environment chose; one that a patch has made fixed is not its choice."""
    environment = ctx.get(LAUNCH_ENVIRONMENT)
    found = environment.get_from(MODE_VARIABLE, ("process",)) if environment is not None else None
    return found.value if found is not None else ""
