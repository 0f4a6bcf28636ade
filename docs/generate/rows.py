"""The catalogue of shipped rows: what each does, needs, provides, and which keys its config takes."""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from docs.generate.declared import names_in
from docs.generate.markdown import code, fenced, listed, table
from docs.generate.schema import ABSENT, BELOW, REQUIRED, Key, keys_of
from docs.generate.source import first_paragraph, loaded, module_doc, module_names
from dsh.composition.dump import dump_rows
from dsh.composition.grammar import services_of
from dsh.composition.mount.resolve import exported, find_plugin
from dsh.composition.plugin_name import normalise
from dsh.composition.profile import read_layer, shipped, shipped_names
from dsh.composition.row import Patch, Row
from dsh.errors import CompositionError
from dsh.kernel import Event, ServiceKey
from dsh.kernel.plugin import runtime_of

PLUGINS = "dsh.plugins"


class Plugin(NamedTuple):
    """What is told of a plugin wherever it is mounted."""

    name: str
    does: str
    """One paragraph."""
    keys: list[Key]
    injects: list[str]
    provides: list[str]
    optional: list[str]
    """Services it reads only where they are there."""
    hears: list[str]
    """Events."""


class Shipped(NamedTuple):
    """A row of a shipped bundle."""

    row: Row
    bundle: str
    plugin: Plugin | None
    """None for a row whose plugin this version does not have."""
    patches: list[tuple[str, Patch]]
    """What other shipped bundles change about it: the bundle and its patch."""

    @property
    def injects(self) -> list[str]:
        own = self.plugin.injects if self.plugin else []
        return [*own, *(name for name in services_of(self.row.get("inject")) if name not in own)]


def _modules(name: str) -> list[str]:
    """The module of a built-in plugin, and those inside it where it is a package."""
    module = f"{PLUGINS}.{name.replace('-', '_')}"
    return [found for found in module_names() if found == module or found.startswith(module + ".")]


@cache
def plugin(name: str) -> Plugin | None:
    """A built-in plugin, None where there is none of this name."""
    spelling = normalise(name)
    modules = _modules(spelling)
    if not modules:
        return None
    found = find_plugin(spelling, Path())
    runtime = runtime_of({}, found, spelling)
    inject = list(runtime.inject)
    optional = [
        service
        for module in modules
        for method in ("get", "has", "inject")
        for service in names_in(module, method, ServiceKey)
    ]
    hears = [event for module in modules for how in ("on", "once") for event in names_in(module, how, Event)]
    return Plugin(
        spelling,
        _does(modules[0]),
        keys_of(runtime.schema) if runtime.schema is not None else [],
        inject,
        list(runtime.provides or ()),
        sorted({name for name in optional if name not in inject}),
        sorted(set(hears)),
    )


def _does(module: str) -> str:
    """The first paragraph of the module, without the name of the row."""
    text = first_paragraph(module_doc(module))
    head, colon, rest = text.partition(": ")
    if colon and head.startswith("Row"):
        text = rest[:1].upper() + rest[1:]
    return text


def _is_plugin(module: str) -> bool:
    """Whether a module of the folder is one that can be mounted."""
    try:
        exported(loaded(module), module)
    except CompositionError:
        return False
    return True


@cache
def rows() -> list[Shipped]:
    """The rows of all shipped bundles, in the order of their files; base first."""
    names = sorted(shipped_names("bundles"), key=lambda name: (name != "base", name))
    layers = {name: read_layer(shipped("bundles", f"{name}.yml"), name, [], "bundle") for name in names}
    made: list[Shipped] = []
    for name, layer in layers.items():
        for patch in layer.patches:
            for row in _walk(patch.get("insert") or ()):
                others = [
                    (other, change)
                    for other, theirs in layers.items()
                    for change in theirs.patches
                    if change.get("insert") is None and change.get("id") == row.id
                ]
                made.append(Shipped(row, name, plugin(row.name), others))
    return made


def _walk(found: Any) -> list[Row]:
    listed_rows = [row for row in found if isinstance(row, Row)]
    return [deep for row in listed_rows for deep in (row, *_walk(row.children))]


def unmounted() -> list[Plugin]:
    """Built-in plugins that no shipped bundle mounts."""
    used = {normalise(shipped_row.row.name) for shipped_row in rows()}
    folder = [name for name in module_names() if name.startswith(PLUGINS + ".") and name.count(".") == 2]
    names = [name.removeprefix(PLUGINS + ".").replace("_", "-") for name in folder if _is_plugin(name)]
    return [found for name in names if name not in used and (found := plugin(name)) is not None]


def providers() -> dict[str, list[str]]:
    """For each service the ids of the rows that provide it."""
    made: dict[str, list[str]] = {}
    for shipped_row in rows():
        for name in shipped_row.plugin.provides if shipped_row.plugin else ():
            made.setdefault(name, []).append(str(shipped_row.row.id))
    return made


def consumers() -> dict[str, list[str]]:
    """For each service the ids of the rows that inject it."""
    made: dict[str, list[str]] = {}
    for shipped_row in rows():
        for name in shipped_row.injects:
            made.setdefault(name, []).append(str(shipped_row.row.id))
    return made


def key_table(keys: list[Key]) -> str:
    shown = [
        (
            code(key.path),
            key.kind,
            key.default if key.default in (REQUIRED, ABSENT, BELOW) else code(key.default),
            key.meaning,
        )
        for key in keys
    ]
    return table(("key", "type", "default", "meaning"), shown)


def _about(found: Plugin | None, injects: list[str]) -> list[str]:
    if found is None:
        return ["The plugin of this row is not part of this version; the row keeps its id for it."]
    lines = [found.does]
    facts = [
        ("Provides", found.provides),
        ("Needs", injects),
        ("Uses where it is there", [name for name in found.optional if name not in injects]),
        ("Listens to", found.hears),
    ]
    told = " ".join(f"{label}: {listed(names)}." for label, names in facts if names)
    if told:
        lines.append(told)
    lines.append(key_table(found.keys).rstrip() if found.keys else "No config.")
    return lines


def _entry(shipped_row: Shipped) -> str:
    parts = [f"### {shipped_row.row.id}", *_about(shipped_row.plugin, shipped_row.injects)]
    parts.append(fenced("\n".join(dump_rows([shipped_row.row])), "yaml").rstrip())
    for bundle, patch in shipped_row.patches:
        parts.append(f"Bundle `{bundle}` changes it:\n\n{fenced(_changes(patch), 'yaml').rstrip()}")
    return "\n\n".join(parts)


def _changes(patch: Patch) -> str:
    """A patch as it is written in its bundle."""
    shown = Row(patch.mark)
    shown.update({"name": "", **patch})
    return "\n".join(line for line in dump_rows([shown]) if line != '  name: ""')


def index() -> str:
    """One line for each row."""
    shown = [
        (
            f"[{made.row.id}](#{made.row.id})",
            code(made.bundle) + (", off" if made.row.disabled is True else ""),
            listed(made.plugin.provides if made.plugin else ()),
            str(len(made.plugin.keys)) if made.plugin else "",
        )
        for made in rows()
    ]
    return table(("row", "bundle", "provides", "config keys"), shown)


def catalogue() -> str:
    """The rows of every shipped bundle, then the plugins without a row."""
    parts: list[str] = []
    for bundle in dict.fromkeys(made.bundle for made in rows()):
        parts.append(f"## Bundle {bundle}")
        parts += [_entry(made) for made in rows() if made.bundle == bundle]
    if rest := unmounted():
        parts.append("## Plugins without a row")
        parts.append("Mount them with a row of your own, usually in place of the one named like them.")
        for found in rest:
            parts.append("\n\n".join([f"### {found.name}", *_about(found, found.injects)]))
    return "\n\n".join(parts) + "\n"
