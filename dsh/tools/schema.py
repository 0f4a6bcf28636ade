"""The JSON Schema subset of tools: checking a schema, and validating a value against it.

Keywords: `type` (one name), `oneOf`, `properties`, `required`, `additionalProperties` (boolean), `items`,
`enum`, `const`, and the annotations `description`, `title`, `default`, `examples`. Whatever else a schema
says is refused where it is registered, so that nothing is believed to be enforced that is not
(`spec/tools.md` §2). Both functions walk with a stack of their own: depth is bounded by memory only.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from dsh.session.value import freeze
from dsh.tools.error import JsonSchemaError

Schema = Mapping[str, Any]
Path = tuple[Any, ...]
"""Linked from the inside out: `(parent, segment)`, `()` at the root. Rendered only for a message."""

ANNOTATIONS = frozenset({"description", "title", "default", "examples"})
STRUCTURE = {"properties": "object", "required": "object", "additionalProperties": "object", "items": "array"}
CONSTRAINTS = frozenset({"type", "oneOf", "enum", "const", *STRUCTURE})
_OF_RECORDS = ANNOTATIONS | {"type", "properties", "required", "additionalProperties"}
SHOWN_SEGMENTS = 100


def _is_number(value: Any) -> bool:
    return type(value) is int or (type(value) is float and math.isfinite(value))


_IS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "object": ("an object", lambda value: isinstance(value, Mapping)),
    "array": ("an array", lambda value: isinstance(value, list | tuple)),
    "string": ("a string", lambda value: isinstance(value, str)),
    "number": ("a number", _is_number),
    "integer": ("an integer", lambda value: _is_number(value) and value == math.floor(value)),
    "boolean": ("a boolean", lambda value: value is True or value is False),
    "null": ("null", lambda value: value is None),
}


def validate(schema: Schema, value: Any, root: str = "value") -> list[str]:
    """What is wrong with `value`, each with its place; empty when it is valid. Applies no defaults.

    Args:
        schema: one that `check_schema` has accepted.
        root: what the value itself is called in messages.
    """
    found: list[str] = []
    stack: list[tuple[Schema | None, Any, Path, list[str]]] = [(schema, value, (), found)]
    while stack:
        node, item, path, sink = stack.pop()
        if node is None:
            matched = sum(not branch for branch in item)
            if matched != 1:
                outcome = "none" if matched == 0 else str(matched)
                sink.append(
                    f"{_quoted(path, root)} must match exactly one of {len(item)} alternatives, "
                    f"it matches {outcome}"
                )
            continue
        if "oneOf" in node:
            branches: list[list[str]] = [[] for _ in node["oneOf"]]
            stack.append((None, branches, path, sink))
            stack.extend(
                (branch, item, path, into) for branch, into in zip(node["oneOf"], branches, strict=True)
            )
            continue
        kind = node.get("type")
        if kind is not None and not _IS[kind][1](item):
            sink.append(f"{_quoted(path, root)} must be {_IS[kind][0]}")
            continue
        if "enum" in node and not any(_same(item, choice) for choice in node["enum"]):
            sink.append(f"{_quoted(path, root)} must be one of {_json(node['enum'])}")
        if "const" in node and not _same(item, node["const"]):
            sink.append(f"{_quoted(path, root)} must be {_json(node['const'])}")
        if kind == "object":
            _check_keys(node, item, path, sink)
            declared = node.get("properties", {})
            stack.extend(
                (declared[key], item[key], (path, key), sink) for key in reversed(declared) if key in item
            )
        elif kind == "array" and "items" in node:
            fits = _quick_test(node["items"]) if len(item) > 1 else None
            stack.extend(
                (node["items"], item[at], (path, at), sink)
                for at in range(len(item) - 1, -1, -1)
                if fits is None or not fits(item[at])
            )
    return found


def _quick_test(node: Schema) -> Callable[[Any], bool] | None:
    """What says of the items of long lists that they fit: bare types, and objects of these; None for others.

    What it does not admit is looked at like anything else.
    """
    kind = node.get("type")
    if kind is None or not node.keys() <= _OF_RECORDS:
        return None
    if kind != "object":
        return None if kind == "array" else _IS[kind][1]
    declared = node.get("properties", {})
    tests = {key: _quick_test(child) for key, child in declared.items() if child.get("type") != "object"}
    if len(tests) < len(declared) or None in tests.values():
        return None
    required, is_closed = set(node.get("required", ())), node.get("additionalProperties") is False

    def fits(value: Any) -> bool:
        if not isinstance(value, dict) or not value.keys() >= required:
            return False
        return all(
            not is_closed if (test := tests.get(key)) is None else test(item) for key, item in value.items()
        )

    return fits


def _check_keys(node: Schema, value: Mapping[str, Any], path: Path, sink: list[str]) -> None:
    sink.extend(
        f"missing required property {_quoted((path, key), '')}"
        for key in node.get("required", ())
        if key not in value
    )
    if node.get("additionalProperties") is False:
        declared = node.get("properties", {})
        sink.extend(
            f"{_quoted((path, key), '')} is not a declared property "
            f"(declared: {', '.join(declared) or 'none'})"
            for key in value
            if key not in declared
        )


def admits_null(schema: Schema) -> bool:
    """Whether null can be a valid value here, so that it must not be read as an absent one."""
    if "oneOf" in schema:
        return any(admits_null(branch) for branch in schema["oneOf"])
    return not validate(schema, None)


def check_schema(schema: Any, *, where: str = "schema") -> None:
    """Refuse a schema outside the subset.

    Raises:
        JsonSchemaError: with every violation, in document order.
    """
    found: list[str] = []
    open_nodes: set[int] = set()
    stack: list[tuple[Any, Path, bool]] = [(schema, (), True)]
    while stack:
        node, path, entering = stack.pop()
        if not entering:
            open_nodes.discard(id(node))
            continue
        if not isinstance(node, Mapping):
            found.append(f"{_place(path)} must be an object")
            continue
        if id(node) in open_nodes:
            found.append(f"{_place(path)} contains itself")
            continue
        open_nodes.add(id(node))
        stack.append((node, path, False))
        found.extend(f"{_place(path)}: {problem}" for problem in _problems(node))
        stack.extend((child, at, True) for child, at in reversed(_children(node, path)))
    if found:
        raise JsonSchemaError(found, where=where)


def _children(node: Schema, path: Path) -> list[tuple[Any, Path]]:
    children: list[tuple[Any, Path]] = []
    if isinstance(branches := node.get("oneOf"), list | tuple):
        children.extend((branch, ((path, "oneOf"), at)) for at, branch in enumerate(branches))
    if isinstance(declared := node.get("properties"), Mapping):
        children.extend((child, (path, key)) for key, child in declared.items())
    if "items" in node:
        children.append((node["items"], (path, "items")))
    return children


def _problems(node: Schema) -> list[str]:
    """What is wrong with one node, its children aside."""
    problems = [f"keyword {key!r} is not supported" for key in node if key not in CONSTRAINTS | ANNOTATIONS]
    kind = node.get("type")
    if "type" in node and not (isinstance(kind, str) and kind in _IS):
        problems.append(f"type must be one of {', '.join(_IS)}")
        kind = None
    if "oneOf" in node:
        if not isinstance(node["oneOf"], list | tuple) or len(node["oneOf"]) < 2:
            problems.append("oneOf must list at least two schemas")
        beside = sorted(CONSTRAINTS.intersection(node) - {"oneOf"})
        if beside:
            problems.append(f"oneOf stands alone, found {', '.join(beside)} beside it")
    else:
        problems.extend(
            f"{key} needs type {owner!r}" for key, owner in STRUCTURE.items() if key in node and kind != owner
        )
    problems.extend(_structure_problems(node))
    problems.extend(_choice_problems(node, kind))
    problems.extend(
        f"{key} must be a string"
        for key in ("description", "title")
        if not isinstance(node.get(key, ""), str)
    )
    for key in ("default", "examples"):
        if key in node:
            try:
                freeze(node[key], key)
            except Exception as error:
                problems.append(f"{key} is not lossless JSON: {error}")
    return problems


def _structure_problems(node: Schema) -> list[str]:
    problems: list[str] = []
    declared = node.get("properties", {})
    if not isinstance(declared, Mapping) or not all(isinstance(key, str) for key in declared):
        problems.append("properties must map names to schemas")
        declared = {}
    required = node.get("required", ())
    if not isinstance(required, list | tuple) or not all(isinstance(key, str) for key in required):
        problems.append("required must be a list of names")
    else:
        problems.extend(
            f"required names {key!r}, which properties does not declare"
            for key in required
            if key not in declared
        )
        if len(set(required)) != len(required):
            problems.append("required names a property twice")
    if not isinstance(node.get("additionalProperties", True), bool):
        problems.append("additionalProperties must be true or false")
    return problems


def _choice_problems(node: Schema, kind: str | None) -> list[str]:
    problems: list[str] = []
    choices = node.get("enum")
    if "enum" in node and (not isinstance(choices, list | tuple) or not choices):
        problems.append("enum must list at least one value")
        choices = ()
    for key, values in (("enum", choices or ()), ("const", (node["const"],) if "const" in node else ())):
        for value in values:
            if not (value is None or isinstance(value, str | bool) or _is_number(value)):
                problems.append(f"{key} holds a value that is no string, finite number, boolean or null")
            elif kind is not None and not _IS[kind][1](value):
                problems.append(f"{key} holds {_json(value)}, which is not {_IS[kind][0]}")
    if "const" in node and choices and not any(_same(node["const"], choice) for choice in choices):
        problems.append("const is not one of enum")
    return problems


def _same(a: Any, b: Any) -> bool:
    """Equality of JSON scalars: `1` is `1.0`, neither is `True`."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b
    return type(a) is type(b) and bool(a == b)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _quoted(path: Path, root: str) -> str:
    return f'"{_text(path) or root}"'


def _place(path: Path) -> str:
    return _text(path) or "the schema"


def _text(path: Path) -> str:
    segments: list[Any] = []
    while path and len(segments) < SHOWN_SEGMENTS:
        path, segment = path
        segments.append(segment)
    text = "".join(f"[{s}]" if isinstance(s, int) else f".{s}" for s in reversed(segments))
    return f"…{text}" if path else text.removeprefix(".")
