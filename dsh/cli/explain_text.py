"""An explanation for people: plain text that fits a terminal of 80 columns."""

import json
from collections.abc import Iterator
from pathlib import Path

from dsh.cli.columns import cut, padded, width, wrapped
from dsh.composition.explain.shape import Explanation, RowInfo, ServiceInfo, ValueInfo

WIDTH = 80
_STATES = {
    "disabled": "off",
    "waiting": "would wait for ever",
    "unclear": "may wait: what it needs is not declared by any row",
    "failing": "would fail",
}


def described(found: Explanation, *, is_one: bool) -> str:
    """The text, ending in a newline; paths in the user's own folder begin with `~`.

    Args:
        is_one: one row is explained: without services and summary.
    """
    lines = [f"profile {found.profile}, dsh {found.dsh}", f"digest  {found.digest}", ""]
    lines += ["layers, the lowest first", *_layers(found), ""]
    for row in found.rows:
        lines += [*_row(row), ""]
    if not is_one and found.removed:
        lines += ["removed rows"]
        lines += [_spread(f"  {r.id or '(no id)'} ({r.name})", r.place.short) for r in found.removed]
        lines += [""]
    if found.services and not is_one:
        lines += ["services", *(line for service in found.services for line in _service(service)), ""]
    if not is_one:
        lines += _summary(found)
    return "\n".join(map(_printable, lines)).rstrip("\n") + "\n"


def _printable(line: str) -> str:
    """What a terminal would obey, in a name or a path, is not shown."""
    return line if line.isprintable() else "".join(char if char.isprintable() else "?" for char in line)


def _layers(found: Explanation) -> Iterator[str]:
    for layer in found.layers:
        kind = f"{layer.kind}, " if layer.kind != layer.name else ""
        count = f"{layer.patches} patch{'' if layer.patches == 1 else 'es'}"
        yield f"  {layer.name:<12} {kind}{count}"
        if layer.file is not None:
            yield f"    {_path(layer.file)}"


def _path(path: str) -> str:
    """The path with `~` for the user's home."""
    user = str(Path.home())
    return f"~{path.removeprefix(user)}" if path.startswith(f"{user}/") else path


def _row(row: RowInfo) -> Iterator[str]:
    plugin = f"{row.name}, {row.plugin}" if row.plugin else row.name
    yield _spread(f"{row.id}  ({cut(plugin, 50)})", _path(row.origin.short))
    if row.state != "ready":
        yield f"  {_STATES[row.state]}"
    if row.disabled is not None:
        by = "" if row.disabled.row == row.id else f" of the group {row.disabled.row}"
        yield _spread(f"    {row.disabled.text}{by}", _path(row.disabled.place.short))
    if row.group is not None:
        yield f"  inside     {row.group}"
    if row.optional:
        yield "  optional   the rest starts without it"
    for wait in row.waits:
        yield f"  waits for  {wait.service or 'the row around it'}"
        for reason in wait.because:
            yield from _wrapped(reason, "    because  ")
        yield from _wrapped(wait.next, "    next     ")
    if row.problem:
        yield from _wrapped(row.problem, "  problem    ")
    if row.config:
        yield "  config"
        for value in row.config:
            yield from _value(value)
    for section in row.settings:
        what = "counts over this" if section.values else "has nothing set"
        yield f"  settings   section {section.section} {what}"
        for value in section.values:
            yield from _value(value)
    for drop in row.dropped:
        yield from _wrapped(f"{drop.key}, by the config of {drop.layer}", "  dropped    ")
    for change in row.changes:
        fields = ", ".join(change.fields) or "removed"
        yield _spread(f"  patched    {fields}", _path(change.place.short))
    if row.provides:
        yield from _wrapped(", ".join(row.provides), "  provides   ")
    elif row.provides is None and row.plugin is not None:
        yield "  provides   not declared by the plugin"
    for number, inject in enumerate(row.injects):
        label = "  injects    " if number == 0 else " " * 13
        realm = "" if inject.realm == "default" else f" ({inject.realm})"
        asked = " [asked by the row]" if inject.asked_by == "row" else ""
        yield f"{label}{inject.service} from {', '.join(inject.providers) or 'nobody'}{realm}{asked}"


def _value(value: ValueInfo) -> Iterator[str]:
    key = ".".join(value.path) or "(all of it)"
    place = _path(value.place.short) if value.place is not None else ""
    if value.source == "default":
        place = f"default, null at {place}" if place else "default"
    elif value.unknown:
        place = f"unknown key, {place}"
    text = f"!expr {value.expression}" if value.expression is not None else _inline(value.value)
    yield _spread(f"    {key}: {text}", place)


def _inline(value: object) -> str:
    if isinstance(value, str) and value and value.isprintable() and value == value.strip():
        return value
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)


def _service(service: ServiceInfo) -> Iterator[str]:
    realm = "" if service.realm == "default" else f" ({service.realm})"
    by = ", ".join(service.providers) or "nobody"
    yield from _wrapped(f"{service.service}{realm} by {by}", "  ", extra=4)
    if service.consumers:
        yield from _wrapped(f"for {', '.join(service.consumers)}", "      ")


def _summary(found: Explanation) -> list[str]:
    """Last, where a terminal shows it: what would keep a start from succeeding, and what it would miss."""
    stops: list[str] = []
    for service in found.services:
        rows = [name for name in service.providers if not name.startswith("<")]
        if len(rows) > 1 or (rows and len(service.providers) > 1):
            text = f"service {service.service}: more than one provides it: {', '.join(service.providers)}"
            stops += _wrapped(text, "  ", extra=2)
    stops += [line for row in found.rows if not row.optional for line in _trouble(row)]
    without = [line for row in found.rows if row.optional for line in _trouble(row)]
    count = len(found.rows)
    off = sum(row.state == "disabled" for row in found.rows)
    total = f"{count} row{'' if count == 1 else 's'}, {off} off"
    lines = [f"{total}; a start would stop at" if stops else f"{total}; nothing is missing", *stops]
    if without:
        lines += ["a start would do without the optional", *without]
    return lines


def _trouble(row: RowInfo) -> Iterator[str]:
    """What keeps a row from starting, in a line or two for each cause."""
    if row.problem:
        yield from _wrapped(f"row {row.id}: {row.problem}", "  ", extra=2)
    for wait in row.waits:
        reasons = wait.because[1:] or wait.because  # the first of several names a row, the next what it lacks
        text = f"row {row.id} waits for {wait.service or row.group}: {', '.join(reasons)}"
        yield from _wrapped(text, "  ", extra=2)
        yield from _wrapped(wait.next, "    next: ")


def _spread(left: str, right: str) -> str:
    """Left and right on one line; what is on the left is cut where both do not fit, once it is one line."""
    left = " ".join(left.split("\n"))
    if not right:
        return cut(left, WIDTH)
    room = max(WIDTH - width(right) - 2, 30)
    return f"{padded(cut(left, room), room)}  {right}"


def _wrapped(text: str, first: str, *, extra: int | None = None) -> list[str]:
    indent = " " * (len(first) if extra is None else len(first) + extra)
    return wrapped(text, WIDTH, first=first, indent=indent)
