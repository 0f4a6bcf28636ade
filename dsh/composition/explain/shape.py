"""The shape of an explanation, which `dsh explain --json` prints in camel case. Keys are only ever added."""

from typing import Any, Literal

import msgspec

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


class SectionInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A section of the settings that a row reads; what is set there counts over the row's config."""

    section: str
    file: str
    """The settings document; empty where only a start can tell which it is."""
    values: tuple[ValueInfo, ...]
    """What is set; masked."""


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
    settings: tuple[SectionInfo, ...]
    """The sections of the settings over its config, as far as the plugin names them."""
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


def only(explanation: Explanation, row_id: str) -> Explanation:
    """The same with one row, what is inside of it, and the services of these."""
    inside = {row_id}
    for row in explanation.rows:
        if row.group in inside:
            inside.add(row.id)
    rows = tuple(row for row in explanation.rows if row.id in inside)
    services = tuple(
        service
        for service in explanation.services
        if inside.intersection((*service.providers, *service.consumers))
    )
    return msgspec.structs.replace(explanation, rows=rows, services=services)
