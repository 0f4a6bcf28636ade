"""What a composition is, row by row, told without mounting anything: gathers what `dsh explain` prints."""

from collections.abc import Callable
from typing import Any, NamedTuple

from dsh import __version__
from dsh.composition.compose import Composition
from dsh.composition.explain.provenance import Sources, Value, expression_of, lost_keys, values_of
from dsh.composition.explain.shape import (
    VERSION,
    ChangeInfo,
    DisabledInfo,
    DroppedInfo,
    Explanation,
    InjectInfo,
    LayerInfo,
    Place,
    RemovedInfo,
    RowInfo,
    SectionInfo,
    ServiceInfo,
    State,
    ValueInfo,
    WaitInfo,
)
from dsh.composition.explain.waiting import Waits, disabling
from dsh.composition.explain.wiring import LAUNCHER, RealmName, Wiring, injected, provided, realm_of
from dsh.composition.lock.digest import contents_of, digest_of
from dsh.composition.lock.plugin_version import plugin_version
from dsh.composition.mount.entry import Entry
from dsh.composition.mount.facts import Facts
from dsh.composition.mount.fit import misfit
from dsh.composition.mount.wording import with_hint
from dsh.composition.patch import Removed, apply_layers
from dsh.composition.profile import site_folder
from dsh.composition.value import Mark
from dsh.masking import masked


class Settled(NamedTuple):
    """What the settings say to a row that registers sections of them."""

    sections: tuple[SectionInfo, ...]
    problem: str | None
    """Why its start would fail on them."""


NO_SETTINGS = Settled((), None)


def explain(
    composition: Composition,
    entries: list[Entry],
    facts: Facts,
    settled: Callable[[Entry], Settled] = lambda entry: NO_SETTINGS,
) -> Explanation:
    """Explain all rows.

    Args:
        entries: the roots of the planned tree (`plan.py`), free of problems.
        settled: asked for each row.
    """
    return _Explaining(composition, entries, facts, settled).all()


class _Explaining:
    """Holds what one explanation looks things up in."""

    def __init__(
        self, composition: Composition, roots: list[Entry], facts: Facts, settled: Callable[[Entry], Settled]
    ) -> None:
        self._composition, self._facts, self._settled = composition, facts, settled
        self._sources = Sources(composition)
        self._entries = [entry for root in roots for entry in root.walk()]
        self._wiring = Wiring(self._entries)
        self._removed: list[Removed] = []
        apply_layers(composition.layers, self._removed)
        self._waits = Waits(self._wiring, self._removed, facts, self._sources.short)
        self._site = site_folder(facts.home, composition.profile)

    def all(self) -> Explanation:
        known = {id(e.row): [child.row for child in e.children] for e in self._entries if e.children}
        return Explanation(
            version=VERSION,
            dsh=__version__,
            profile=self._composition.profile,
            digest=digest_of(contents_of(self._composition, self._facts.home, known)),
            layers=tuple(self._layers()),
            warnings=tuple(map(str, self._composition.warnings)),
            rows=tuple(map(self._row, self._entries)),
            removed=tuple(
                RemovedInfo(id=row.id, name=row.name, place=self._place(change.mark))
                for row, change in self._removed
            ),
            services=tuple(self._services()),
        )

    def _layers(self) -> list[LayerInfo]:
        return [
            LayerInfo(
                name=self._sources.names[layer.label],
                kind=layer.kind,
                label=layer.label,
                file=None if layer.path is None else str(layer.path),
                patches=len(layer.patches),
            )
            for layer in self._composition.layers
        ]

    def _place(self, mark: Mark) -> Place:
        return Place(
            layer=self._sources.layer_at(mark),
            file=mark.file,
            line=mark.line,
            column=mark.column,
            short=self._sources.short(mark),
        )

    def _row(self, entry: Entry) -> RowInfo:
        row, is_plugin = entry.row, not entry.carries_entries
        runtime = entry.runtime if is_plugin else None
        settled = self._settled(entry)
        problem = None if entry.is_disabled else self._problem(entry) or settled.problem
        values = (
            []
            if row.carries_rows
            else values_of(
                row.config, runtime.schema if runtime is not None else None, row.value_at("config")
            )
        )
        return RowInfo(
            id=entry.id,
            name=row.name,
            plugin=plugin_version(row.name, row.folder, self._site) if runtime is not None else None,
            state="failing" if problem is not None else self._state(entry),
            group=entry.parent.id if entry.parent is not None else None,
            optional=entry.is_optional,
            origin=self._place(row.mark),
            changes=tuple(ChangeInfo(place=self._place(c.mark), fields=c.fields) for c in row.changes),
            dropped=tuple(
                DroppedInfo(layer=layer, key=".".join(path))
                for layer, path in lost_keys(row.config, row.dropped)
            ),
            disabled=self._disabled(entry),
            config=tuple(map(self._value, values)),
            settings=settled.sections,
            provides=provided(entry) if is_plugin else None,
            injects=tuple(self._inject(entry, *asked) for asked in injected(entry).items()),
            waits=tuple(
                WaitInfo(service=w.service, because=tuple(w.because), next=w.next_step)
                for w in self._waits.of(entry)
            ),
            problem=problem,
        )

    def _state(self, entry: Entry) -> State:
        if entry.is_disabled:
            return "disabled"
        if entry in self._wiring.ready:
            return "ready"
        return "unclear" if entry in self._wiring.perhaps else "waiting"

    def _disabled(self, entry: Entry) -> DisabledInfo | None:
        found = disabling(entry, self._facts)
        if found is None:
            return None
        return DisabledInfo(row=found.entry.id, text=found.text, place=self._place(found.mark))

    def _value(self, value: Value) -> ValueInfo:
        expression = expression_of(value.value)
        return ValueInfo(
            path=value.path,
            value=None if expression is not None else value.value,
            expression=expression,
            source="default" if value.is_default else "written",
            place=None if value.mark is None else self._place(value.mark),
            unknown=value.is_unknown,
        )

    def _inject(self, entry: Entry, service: str, asked_by: Any) -> InjectInfo:
        realm = realm_of(entry, service)
        return InjectInfo(
            service=service, asked_by=asked_by, realm=str(realm), providers=self._providers(realm)
        )

    def _providers(self, realm: RealmName) -> tuple[str, ...]:
        rows = [entry.id for entry in self._wiring.providers.get(realm, ())]
        return tuple([LAUNCHER, *rows] if self._wiring.is_from_launcher(realm) else rows)

    def _services(self) -> list[ServiceInfo]:
        realms = {*self._wiring.providers, *self._wiring.consumers}
        return [
            ServiceInfo(
                service=realm.service,
                realm=str(realm),
                providers=self._providers(realm),
                consumers=tuple(entry.id for entry in self._wiring.consumers.get(realm, ())),
            )
            for realm in sorted(realms, key=lambda realm: (realm.service, str(realm)))
        ]

    def _problem(self, entry: Entry) -> str | None:
        """Why the row cannot be loaded, or its config is refused, unless that depends on a service."""
        if entry.error is not None:
            return masked(with_hint(entry.error))
        report = misfit(entry, self._facts)
        return None if report is None else masked(report.detail)
