"""The sections of the settings document, and the keys that each takes."""

import ast
from typing import Any, NamedTuple

from docs.generate.markdown import listed
from docs.generate.rows import key_table, plugin
from docs.generate.schema import Key, keys_of
from docs.generate.source import module_names, tree_of, value_of

PLUGINS = "dsh.plugins."


class Section(NamedTuple):
    """One section and the plugins that own it, one of which is mounted."""

    namespace: str
    plugins: list[str]
    keys: list[Key]


def sections() -> list[Section]:
    """By namespace."""
    found: dict[str, Section] = {}
    for module in module_names():
        if not module.startswith(PLUGINS):
            continue
        owner = module.removeprefix(PLUGINS).partition(".")[0].replace("_", "-")
        for node in ast.walk(tree_of(module)):
            match node:
                case ast.Call(func=ast.Name(id="install_settings_section"), args=[_, name, schema, *_]):
                    namespace = _value(module, name)
                    keys = keys_of(_value(module, schema))
                    found.setdefault(namespace, Section(namespace, [], keys)).plugins.append(owner)
    return [found[name] for name in sorted(found)]


def _value(module: str, node: ast.expr) -> Any:
    """What an argument is, without running the call."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return value_of(module, name)
    raise ValueError(f"{module}: line {node.lineno}: a name or a constant is needed to document the section")


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
