"""What the owner of a section holds."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from dsh.capabilities.settings import SettingsChange
from dsh.kernel import Context, Effect
from dsh.plugins.settings.operation import Operation, merging, mutating, replacing
from dsh.plugins.settings.section import Section
from dsh.plugins.settings.view import View

S = TypeVar("S", bound=msgspec.Struct)
Write = Callable[[Operation, int | None], Awaitable[int]]
"""Queues a write to the section, for the revision that is expected."""


class Scope(Generic[S]):
    """Implements `dsh.capabilities.settings.SettingsScope`. It has no state of its own."""

    def __init__(self, ctx: Context, section: Section, view: View[S], write: Write) -> None:
        """`ctx` is the owner's: watchers end with it."""
        self._ctx, self._section, self._view, self._write = ctx, section, view, write

    @property
    def revision(self) -> int:
        return self._section.revision

    def get(self) -> S:
        return self._view.value

    def watch(self, callback: Callable[[S, S], Any]) -> Effect:
        view = self._view

        def own() -> Callable[[], None]:
            return lambda: view.drop(effect)

        effect = self._ctx.effect(own, f"watch settings {view.namespace}")
        view.add(effect, callback)
        return effect

    def update(self, patch: Mapping[str, Any], *, expected_revision: int | None = None) -> Awaitable[int]:
        return self._write(merging(patch), expected_revision)

    def replace(self, section: Mapping[str, Any], *, expected_revision: int | None = None) -> Awaitable[int]:
        return self._write(replacing(section), expected_revision)

    def mutate(
        self, changes: Sequence[SettingsChange], *, expected_revision: int | None = None
    ) -> Awaitable[int]:
        return self._write(mutating(self._section.namespace, changes), expected_revision)
