"""What an examination of this machine is made of: findings, and the surroundings that they are about."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from dsh.composition.expression.evaluation import config_data
from dsh.composition.mount.entry import Entry
from dsh.composition.mount.facts import Facts, scope_of
from dsh.errors import CompositionError, DshError
from dsh.kernel import Context, ValidationError, resolve_config

Status = Literal["ok", "warning", "failed"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    check: str
    """The examination it belongs to, such as `sandbox`."""
    name: str
    status: Status
    """Only `failed` keeps a run of this profile from working."""
    detail: str
    hint: str = ""
    """What to do about it; empty where nothing is wrong."""


def failed(check: str, name: str, error: DshError) -> Finding:
    """What an error says, in one line."""
    return Finding(check, name, "failed", " ".join(error.message.split()), error.hint)


class Surroundings(NamedTuple):
    """The composed profile and where it would run. Nothing of it is mounted."""

    entries: tuple[Entry, ...]
    """All rows, those inside of others too."""
    facts: Facts

    def row(self, plugin: object) -> Entry | None:
        """The first row of a plugin that is not off."""
        return next((entry for entry in self.entries if entry.plugin is plugin and not entry.is_off), None)

    def config(self, entry: Entry, ctx: Context) -> Any:
        """A row's config; expressions in it may read the services of `ctx`.

        Raises:
            DshError: an expression fails, or the config does not fit the plugin, with its place.
        """
        schema = entry.runtime.schema if entry.runtime is not None else None
        data = config_data(entry.row.config, scope_of(self.facts, ctx))
        try:
            return data if schema is None else resolve_config(schema, data, lambda path, key, hint: None)
        except ValidationError as error:
            raise CompositionError(entry.failure(error)) from None


Check = Callable[[Surroundings], Awaitable[Sequence[Finding]]]
"""Looks at one thing, changes nothing, and ends by itself. What it raises is a finding, too."""
