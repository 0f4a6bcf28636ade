"""The sections of the settings document, and the keys that each takes."""

from pathlib import Path
from typing import NamedTuple

from docs.generate.markdown import listed
from docs.generate.rows import key_table, plugin
from docs.generate.schema import Key, keys_of
from docs.generate.source import module_names
from dsh.composition.mount.resolve import find_plugin

PLUGINS = "dsh.plugins."


class Section(NamedTuple):
    """One section and the plugins that own it, one of which is mounted."""

    namespace: str
    plugins: list[str]
    keys: list[Key]


def sections() -> list[Section]:
    """By namespace."""
    found: dict[str, Section] = {}
    modules = [name.removeprefix(PLUGINS) for name in module_names() if name.startswith(PLUGINS)]
    for name in [name.replace("_", "-") for name in modules if "." not in name]:
        for namespace, schema in getattr(find_plugin(name, Path()), "sections", {}).items():
            found.setdefault(namespace, Section(namespace, [], keys_of(schema))).plugins.append(name)
    return [found[name] for name in sorted(found)]


def settings_tables() -> str:
    parts = []
    for section in sections():
        text = f"### {section.namespace}\n\nOf plugin {listed(section.plugins)}."
        same = [name for name in section.plugins if (found := plugin(name)) and found.keys == section.keys]
        if same:
            parts.append(
                f"{text} It takes the keys of [its config](rows.md#{same[0]}), which it overrides.\n"
            )
        else:
            parts.append(f"{text}\n\n{key_table(section.keys)}")
    return "\n".join(parts)
