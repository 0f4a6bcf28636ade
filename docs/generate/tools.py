"""The tools that shipped rows bring: what a model is told of each, and what bounds it.

Each row is mounted for a moment, with stand-ins for the services that it reads, and registers what is told.
"""

import asyncio
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from docs.generate import rows
from docs.generate.declared import services
from docs.generate.markdown import code, fenced, table
from dsh.composition.mount.resolve import find_plugin
from dsh.composition.plugin_name import normalise
from dsh.composition.value import Expr
from dsh.errors import CompositionError
from dsh.kernel import Context
from dsh.tools.definition import ToolDefinition
from dsh.tools.registry import TOOLS, ToolRegistry


class Catalogued(NamedTuple):
    """One tool and where it comes from."""

    row: str
    """Id of the row, or name of the plugin where no bundle mounts it."""
    bundle: str
    """Empty for a plugin without a row."""
    is_off: bool
    """Off, or switched off by a key of its row."""
    definition: ToolDefinition


class StandIn:
    """A service of any kind: whatever is asked of it, it answers with itself."""

    def __getattr__(self, name: str) -> "StandIn":
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *_: object, **__: object) -> "StandIn":
        return self


@cache
def catalogued() -> list[Catalogued]:
    """Every tool, by name; the same one of two rows twice, that of a bundle first."""
    shipped = [
        (made.row, made.bundle, made.row.disabled is True) for made in rows.rows() if made.plugin is not None
    ]
    mounts = [(str(row.id), row.name, _literal(row.config), bundle, off) for row, bundle, off in shipped]
    mounts += [(found.name, found.name, {}, "", False) for found in rows.unmounted()]
    made = []
    for row, name, config, bundle, off in mounts:
        spelling = normalise(name)
        if not spelling.startswith("tool-"):
            continue
        told = asyncio.run(_registered(spelling, config))
        made += [Catalogued(row, bundle, off, definition) for definition in told]
        more = asyncio.run(_switched_off(spelling, config, {definition.name for definition in told}))
        made += [Catalogued(row, bundle, True, definition) for definition in more]
    return sorted(made, key=lambda tool: (tool.definition.name, not tool.bundle, tool.row))


async def _switched_off(name: str, config: Mapping[str, Any], there: set[str]) -> list[ToolDefinition]:
    """The tools that a row would have without the keys that say false."""
    default = {key: value for key, value in config.items() if value is not False}
    if default == config:
        return []
    try:
        found = await _registered(name, default)
    except CompositionError:  # a key that must be there
        return []
    return [definition for definition in found if definition.name not in there]


def _literal(config: Any) -> dict[str, Any]:
    """What a config says without an expression."""
    pairs = config.items() if isinstance(config, dict) else ()
    return {str(key): value for key, value in pairs if not isinstance(value, Expr)}


async def _registered(name: str, config: Mapping[str, Any]) -> list[ToolDefinition]:
    """The tools that a row registers when it is mounted."""
    ctx = Context()
    registry = ToolRegistry(ctx)
    known = rows.plugin(name)
    read = {*known.injects, *known.optional} - {TOOLS.name} if known is not None else set()
    for declared in services():
        if declared.key.name in read:
            ctx.provide(declared.key, StandIn())
    try:
        await ctx.plugin(find_plugin(name, Path()), dict(config))
        names = [schema.name for schema in registry.schemas()]
        return [found for tool in names if (found := registry.get(tool)) is not None]
    finally:
        await ctx.dispose()


def index() -> str:
    """One line for each tool."""
    lines = [
        (
            code(tool.definition.name),
            _place(tool),
            ", ".join(map(code, tool.definition.parameters.get("properties", {}))),
        )
        for tool in catalogued()
    ]
    return table(("tool", "row", "parameters"), lines)


def catalogue() -> str:
    """Every tool with what the model is told."""
    return "\n".join(part for tool in catalogued() for part in _entry(tool))


def _place(tool: Catalogued) -> str:
    where = f"bundle `{tool.bundle}`" if tool.bundle else "in no bundle"
    return f"[{tool.row}](rows.md#{tool.row}), {where}{', off' if tool.is_off else ''}"


def _entry(tool: Catalogued) -> Iterator[str]:
    definition = tool.definition
    yield f"### {definition.name} of {tool.row}\n"
    yield f"Row {_place(tool)}. {_bounds(definition)}\n"
    yield fenced(_wrapped(definition.description), "text")
    lines = list(parameters(definition.parameters))
    yield table(("parameter", "type", "the model is told"), lines) if lines else "No parameters.\n"


def _bounds(definition: ToolDefinition) -> str:
    """Deadline and company, in words."""
    if definition.timeout_ms is None:
        deadline = "Bounds itself"
    elif definition.timeout_ms is msgspec.UNSET:
        deadline = "Ends at the default deadline of `timeout-policy`"
    else:
        deadline = f"Ends after {definition.timeout_ms:,g} ms"
    if definition.resources is not None:
        company = "waits for calls that touch the same"
    elif definition.is_concurrency_safe is not None:
        company = "runs beside others"
    else:
        company = "runs alone"
    return f"{deadline}; {company}."


def _wrapped(text: str, width: int = 110) -> str:
    """The text in lines."""
    return "\n".join(textwrap.fill(line, width) for line in text.splitlines())


def parameters(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str, str]]:
    """Name, type and description of every parameter, those inside others behind them."""
    required = schema.get("required", ())
    for name, node in schema.get("properties", {}).items():
        optional = "" if name in required else " (optional)"
        yield code(prefix + name) + optional, _type(node), " ".join(str(node.get("description", "")).split())
        inner, suffix = node, ""
        while inner.get("type") == "array":
            inner, suffix = inner.get("items", {}), suffix + "[]"
        yield from parameters(inner, f"{prefix}{name}{suffix}.")


def _type(node: Mapping[str, Any]) -> str:
    """A type in words."""
    if "enum" in node:
        return " · ".join(code(str(value)) for value in node["enum"])
    kind = node.get("type", "any")
    if kind == "array":
        return f"list of {_type(node.get('items', {}))}"
    words = {"string": "text", "boolean": "`true` · `false`", "object": "object"}
    return words.get(kind, str(kind)) + _range(node)


def _range(node: Mapping[str, Any]) -> str:
    least, most = node.get("minimum"), node.get("maximum")
    return (f" from {least:,}" if least is not None else "") + (f" to {most:,}" if most is not None else "")
