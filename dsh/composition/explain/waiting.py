"""Why a row would wait for ever: from what it lacks down to the cause, and the one thing to do about it."""

import importlib
import pkgutil
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from dsh.composition.explain.wiring import LAUNCHER_SERVICES, RealmName, Wiring, provided, realm_of
from dsh.composition.grammar import closest
from dsh.composition.mount.entry import Entry
from dsh.composition.mount.facts import Facts, says_disabled
from dsh.composition.mount.resolve import BUILT_IN, find_plugin
from dsh.composition.patch import Removed
from dsh.composition.row import Row
from dsh.composition.value import Expr, Mark, quoted
from dsh.errors import CompositionError, KernelError
from dsh.kernel.plugin import provided_names
from dsh.masking import masked

MAX_CHAIN = 12
"""How many rows, each waiting for the next, one explanation follows."""


class Wait(NamedTuple):
    """One service that does not come, or the row around that does not start."""

    service: str | None
    """None where it is the group or include around the row that waits."""
    because: list[str]
    """Sentences without a full stop, the nearest reason first."""
    next_step: str


class Disabled(NamedTuple):
    """Who turns a row off: itself, or a group around it."""

    entry: Entry
    mark: Mark
    text: str
    """What stands there: `disabled: true`, or the expression, masked."""


def disabling(entry: Entry, facts: Facts) -> Disabled | None:
    """The nearest row that turns this one off; None for a row that runs."""
    here: Entry | None = entry
    while here is not None and here.is_disabled:
        if says_disabled(here.row, facts):
            value = here.row.disabled
            text = masked(value.shown) if isinstance(value, Expr) else "true"
            return Disabled(here, here.row.value_at("disabled"), f"disabled: {text}")
        here = here.parent
    return None


class Waits:
    """Explains the rows of one composition that do not start."""

    def __init__(
        self, wiring: Wiring, removed: list[Removed], facts: Facts, place: Callable[[Mark], str]
    ) -> None:
        self._wiring, self._removed, self._facts, self._place = wiring, removed, facts, place

    @cached_property
    def _declared(self) -> dict[str, list[Entry]]:
        """All rows, also those that are off, by the names they declare. Imports the plugins of the latter."""
        found: dict[str, list[Entry]] = {}
        for entry in self._wiring.entries:
            for name in self._names_of(entry):
                found.setdefault(name, []).append(entry)
        return found

    def of(self, entry: Entry) -> list[Wait]:
        """Everything the row waits for; nothing for one that starts or is disabled."""
        if entry.is_off or entry in self._wiring.ready:
            return []
        found = [self._service(entry, name, (entry,)) for name in self._wiring.missing(entry)]
        if entry.parent is not None and not found and entry.parent not in self._wiring.ready:
            found.append(self._around(entry.parent))
        return found

    def _around(self, parent: Entry) -> Wait:
        reasons = self.of(parent)
        because = [f"row {parent.id} around it does not start"]
        if not reasons:
            return Wait(None, because, f"see dsh explain {parent.id}")
        first = reasons[0]
        needs = f"row {parent.id} waits for {first.service}" if first.service else ""
        return Wait(None, [*because, *filter(None, [needs]), *first.because], first.next_step)

    def _service(self, entry: Entry, name: str, chain: tuple[Entry, ...]) -> Wait:
        realm = realm_of(entry, name)
        here = [e for e in self._declared.get(name, []) if realm_of(e, name) == realm]
        for provider in here:
            if provider in chain:
                rows = [e.id for e in chain[chain.index(provider) :]]
                circle = " -> ".join([*rows, provider.id])
                because = [f"row {provider.id} provides it, and the rows wait in a circle: {circle}"]
                return Wait(name, because, f"make one of these rows do without: {', '.join(rows)}")
        running = [e for e in here if not e.is_off]
        if running:
            return self._waiting(name, running[0], chain)
        if here:
            return self._disabled(name, here[0])
        return self._nobody(name, realm)

    def _waiting(self, name: str, provider: Entry, chain: tuple[Entry, ...]) -> Wait:
        because = f"row {provider.id} provides it and does not start itself"
        if len(chain) >= MAX_CHAIN:
            return Wait(name, [because], f"see dsh explain {provider.id}")
        missing = self._wiring.missing(provider)
        if not missing:
            assert provider.parent is not None  # nothing else can keep it
            around = self._around(provider.parent)
            return Wait(name, [because, *around.because], around.next_step)
        cause = self._service(provider, missing[0], (*chain, provider))
        return Wait(
            name, [because, f"row {provider.id} waits for {missing[0]}", *cause.because], cause.next_step
        )

    def _disabled(self, name: str, provider: Entry) -> Wait:
        found = disabling(provider, self._facts)
        assert found is not None  # it is off
        row, mark, text = found
        inside = "" if row is provider else f" with the group {row.id}"
        because = f"row {provider.id} provides it and is disabled{inside} at {self._place(mark)} ({text})"
        return Wait(name, [because], f"enable it with a patch: {{id: {row.id}, disabled: false}}")

    def _nobody(self, name: str, realm: RealmName) -> Wait:
        elsewhere = [e for e in self._declared.get(name, []) if not e.is_off]
        if elsewhere:
            theirs = realm_of(elsewhere[0], name)
            because = f"row {elsewhere[0].id} provides it in another realm ({theirs}; here: {realm})"
            return Wait(name, [because], f"give both rows the same label: isolate: {{{name}: shared}}")
        if name in LAUNCHER_SERVICES:
            because = f"the launcher provides it outside of this realm ({realm})"
            return Wait(name, [because], f"take {name} out of isolate")
        for row, change in self._removed:
            if name in _declares(row):
                because = f"row {row.id}, which provided it, is removed at {self._place(change.mark)}"
                return Wait(name, [because], "take that patch out")
        because = "no row provides it"
        if self._wiring.undeclared:
            rows = ", ".join(entry.id for entry in self._wiring.undeclared)
            because = f"no row declares that it provides it; without a declaration: {rows}"
        return Wait(name, [because], self._remedy(name))

    def _remedy(self, name: str) -> str:
        if plugins := built_in_providers(name):
            example = f"- insert: [{{id: {plugins[0]}, name: {plugins[0]}}}]"
            return f"add a row of a plugin that provides it ({', '.join(plugins)}): {example}"
        if similar := closest(name, [*self._declared, *LAUNCHER_SERVICES]):
            return f"did you mean {quoted(similar[0])}? else add a row whose plugin provides it"
        return "add a row whose plugin provides it"

    @staticmethod
    def _names_of(entry: Entry) -> tuple[str, ...]:
        if entry.runtime is not None or entry.carries_entries:
            return provided(entry) or ()
        return _declares(entry.row)


def _declares(row: Row) -> tuple[str, ...]:
    """What the plugin of a row that does not run declares; nothing if it cannot be imported."""
    try:
        return provided_names(getattr(find_plugin(row.name, row.folder), "provide", None)) or ()
    except (CompositionError, KernelError):
        return ()


def built_in_providers(service: str) -> list[str]:
    """The built-in plugins that declare a service, by the names that rows give them."""
    package = importlib.import_module(BUILT_IN)
    names = sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(package.__path__))
    found = []
    for name in names:
        plugin = find_plugin(name, Path())
        if service in (provided_names(getattr(plugin, "provide", None)) or ()):
            found.append(name)
    return found
