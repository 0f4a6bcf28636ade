"""What a write does to a section: taken, and copied, when it is asked for, and done when its turn comes."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dsh.capabilities.settings import SettingsChange, SettingsError, SettingsSectionError
from dsh.capabilities.user_document import changed, plain
from dsh.plugins.settings.merge import patched
from dsh.session.error import JsonError
from dsh.session.value import freeze

Operation = Callable[[Any], Any]
"""Makes the next section, as it is to be written, of the present one."""


def merging(patch: Mapping[str, Any]) -> Operation:
    """Merge this into the section (RFC 7386)."""
    taken = _snapshot(patch)
    return lambda raw: patched(raw, taken)


def replacing(section: Mapping[str, Any]) -> Operation:
    """Put this in place of the section."""
    taken = _snapshot(section)
    return lambda _: taken


def mutating(namespace: str, changes: Sequence[SettingsChange]) -> Operation:
    """Make these changes in order, all or none."""
    taken = [(one.op, tuple(one.path), _snapshot(one.value)) for one in changes]

    def operation(raw: Any) -> Any:
        for op, path, value in taken:
            try:
                raw = changed(raw, op, path, value)
            except ValueError as error:
                raise SettingsSectionError(namespace, str(error), path=path, mark=None) from None
        return raw

    return operation


def _snapshot(value: Any) -> Any:
    """A copy of JSON data.

    Raises:
        SettingsError: it is something else; the path begins with `$`, the value is not shown.
    """
    if not isinstance(value, dict) and isinstance(value, Mapping):
        value = dict(value)
    try:
        return plain(freeze(value, "$"))
    except JsonError as error:
        raise SettingsError(
            f"settings hold JSON data only: {error.message}", code="SETTINGS_NOT_JSON"
        ) from None
