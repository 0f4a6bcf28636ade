"""Options of the row `permission`, and its section of the settings."""

import msgspec

from dsh.capabilities.permission import CUSTOM, Preset

NAMESPACE = "permission"

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


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename="camel"):
    """The settings section `permission`."""

    default_preset: str | None = None
    """For new sessions, over that of the row; `DSH_PERMISSION_MODE` outranks it."""
