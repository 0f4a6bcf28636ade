"""What a composition is, row by row, told without mounting anything: the data behind `dsh explain`.

The structs are the shape of `--json`, in camel case; keys are only ever added to it.
"""

from typing import Any, Literal

import msgspec

from dsh import __version__
from dsh.composition.compose import Composition
from dsh.composition.digest import contents_of, digest_of
from dsh.composition.entry import Entry, with_hint
from dsh.composition.facts import Facts, scope_of
from dsh.composition.patch import Removed, apply_layers
from dsh.composition.plugin_version import plugin_version
from dsh.composition.profile import site_folder
from dsh.composition.provenance import Sources, Value, expression_of, lost_keys, values_of
from dsh.composition.value import Mark
from dsh.composition.waiting import Waits, disabling
from dsh.composition.wiring import LAUNCHER, RealmName, Wiring, injected, provided, realm_of
from dsh.errors import CompositionError, DshError

VERSION = 1
State = Literal["ready", "disabled", "waiting", "unclear", "failing"]
"""Starts; is off; waits for ever; starts only if a plugin provides what it does not declare; is refused."""


class Place(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where something is written. Line and column count from 1."""

    layer: str | None
    """Label of the layer; null in the file of an include."""
    file: str
    line: int
    column: int
    short: str
    """For people: name of the layer, or path of the include's file, and line."""


class LayerInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One layer, low to high."""

    name: str
    """Short and unique: of a bundle its name, else `profile`, `home`, `patch`, `patch-2`, `<launcher>`."""
    kind: Literal["bundle", "profile", "home", "patch", "launcher"]
    label: str
    file: str | None
    patches: int


class ValueInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One value of a row's effective config."""

    path: tuple[str, ...]
    """Keys and positions from the config down."""
    value: Any
    """Masked; null beside an expression."""
    expression: str | None
    """Source of the expression that gives the value when the row starts."""
    source: Literal["written", "default"]
    """In a file, or in the plugin's `Config`."""
    place: Place | None
    """Of a default only where a null is written for it."""
    unknown: bool
    """The plugin has no such key."""


class ChangeInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One patch that named the row."""

    place: Place
    fields: tuple[str, ...]
    """What it says: names of fields, `merge`, `insert` for rows put into the group."""


class DroppedInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A config key that a lower layer set and a replacing `config` lost."""

    layer: str
    key: str


class DisabledInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What turns the row off."""

    row: str
    """The row itself, or the group around it that says so."""
    text: str
    place: Place


class InjectInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One service the row waits for."""

    service: str
    asked_by: Literal["plugin", "row"]
    realm: str
    """`default`, `label X`, or `private to ROW`."""
    providers: tuple[str, ...]
    """Rows that run and declare it there; `<launcher>`; empty where nobody does."""


class WaitInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing the row would wait for and never get."""

    service: str | None
    """Null where the row around it does not start."""
    because: tuple[str, ...]
    """Sentences, the nearest reason first, the cause last."""
    next: str
    """The one thing to do."""


class RowInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One row of the tree."""

    id: str
    name: str
    plugin: str | None
    """Package and version, or hash of the file; null for groups, includes and rows that are off."""
    state: State
    group: str | None
    """The group or include around it."""
    optional: bool
    origin: Place
    changes: tuple[ChangeInfo, ...]
    dropped: tuple[DroppedInfo, ...]
    disabled: DisabledInfo | None
    config: tuple[ValueInfo, ...]
    """Of groups and includes as well as of rows that are off only what is written."""
    provides: tuple[str, ...] | None
    """Services that the plugin declares; null where it declares nothing or is not loaded."""
    injects: tuple[InjectInfo, ...]
    waits: tuple[WaitInfo, ...]
    problem: str | None
    """Why it would be refused, as far as that can be told before it starts."""


class ServiceInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One service name in one realm."""

    service: str
    realm: str
    providers: tuple[str, ...]
    """Two rows here cannot both start."""
    consumers: tuple[str, ...]


class RemovedInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A row that a patch took out."""

    id: str | None
    name: str
    place: Place


class Explanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything `dsh explain` tells."""

    version: int
    """Of this shape."""
    dsh: str
    profile: str
    digest: str
    layers: tuple[LayerInfo, ...]
    warnings: tuple[str, ...]
    rows: tuple[RowInfo, ...]
    """Groups before what is inside them. With ROW: that one and what is inside of it."""
    removed: tuple[RemovedInfo, ...]
    services: tuple[ServiceInfo, ...]
    """By name. With ROW: those that its rows provide or inject."""


def explain(composition: Composition, entries: list[Entry], facts: Facts) -> Explanation:
    """Explain all rows.

    Args:
        entries: the roots of the planned tree (`plan.py`), free of problems.
    """
    return _Explaining(composition, entries, facts).all()


class _Explaining:
    """Holds what one explanation looks things up in."""

    def __init__(self, composition: Composition, roots: list[Entry], facts: Facts) -> None:
        self._composition, self._facts = composition, facts
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
        problem = None if entry.is_disabled else self._problem(entry)
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
            return with_hint(entry.error)
        schema = entry.runtime.schema if entry.runtime is not None else None
        if schema is None or _services_read(entry):
            return None
        from dsh.composition.evaluation import config_data
        from dsh.kernel.schema import resolve_config

        try:
            resolve_config(schema, config_data(entry.row.config, scope_of(self._facts)))
        except DshError as error:
            entry.error = error
            report = entry.report()
            entry.error = None
            return None if report is None else report.detail
        return None


def _services_read(entry: Entry) -> bool:
    from dsh.composition.expr import find_expressions

    return any(expr.checked.services for _, expr in find_expressions(entry.row.config))


def only(explanation: Explanation, row_id: str) -> Explanation:
    """The same with one row, what is inside of it, and the services of these.

    Raises:
        CompositionError: there is no such row.
    """
    inside = {row_id}
    for row in explanation.rows:
        if row.group in inside:
            inside.add(row.id)
    rows = tuple(row for row in explanation.rows if row.id in inside)
    if not rows:
        raise CompositionError(f"no row {row_id!r}")
    services = tuple(
        service
        for service in explanation.services
        if inside.intersection((*service.providers, *service.consumers))
    )
    return msgspec.structs.replace(explanation, rows=rows, services=services)
