"""How a row lets people override its options: with its own config where there are no settings."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from dsh.capabilities.settings import SETTINGS, Applies, SettingsScope
from dsh.kernel import Context

S = TypeVar("S", bound=msgspec.Struct)


class SettingsSection(Generic[S]):
    """The options of a row as they count now. State: the section of the settings, while there is one."""

    def __init__(self, entry: S) -> None:
        self._entry = entry
        self._scope: SettingsScope[S] | None = None

    @property
    def scope(self) -> SettingsScope[S] | None:
        """For writing; None where no settings are mounted."""
        return self._scope

    def get(self) -> S:
        """Settings over the row's config. To be read anew each time."""
        return self._entry if self._scope is None else self._scope.get()

    def enter(self, scope: SettingsScope[S] | None) -> None:
        """Follow this section from now on, or the row's config alone; used by the installer."""
        self._scope = scope


def install_settings_section(
    ctx: Context,
    namespace: str,
    schema: type[S],
    entry: S,
    *,
    applies: Applies = "live",
    validate: Callable[[S], None] | None = None,
    changed: Callable[[S], None] | None = None,
) -> SettingsSection[S]:
    """Register a section whenever the service `settings` is there, with the row's config below it.

    When the service goes, the row's config alone counts again, and is told to `changed` as any other
    change; neither happens while the row itself goes. A section that is not accepted fails the registration,
    which the boot audit reports for the row. Several rows may read one section, each over its own config, as
    two shells in realms of their own do.

    Args:
        entry: what the row's config says, in the form of the section.
        validate: judges what the schema cannot, by raising `ValueError` or `ValidationError`.
        changed: told each value that counts from then on, except the entry at the start.
    """
    section = SettingsSection(entry)

    def leave() -> None:
        section.enter(None)
        if changed is not None and ctx.fiber.accepts_effects:
            changed(entry)

    def enter(inner: Context) -> Any:
        scope = inner.use(SETTINGS).register(
            namespace, schema, base=entry, applies=applies, validate=validate, shared=True
        )
        section.enter(scope)
        inner.effect(lambda: leave, f"settings section {namespace}")
        if changed is not None:
            listener = changed
            listener(scope.get())
            scope.watch(lambda value, _: listener(value))

    ctx.plugin(enter, name=f"settings section {namespace}", inject=[SETTINGS])
    return section
