"""How tool authors write schemas: properties by name, `required: True` at the property it is about.

    {"path": {"type": "string", "description": "…", "required": True},
     "limit": {"type": "integer", "description": "…"}}

The root stays open: a model that adds an argument is not refused. Objects inside, and objects in output
schemas, say `additionalProperties` themselves. Type `json` admits anything.
"""

from collections.abc import Mapping
from typing import Any

from dsh.tools.error import JsonSchemaError
from dsh.tools.schema import check_schema

MAX_DEPTH = 256
Node = Mapping[str, Any]


def compile_parameters(parameters: Mapping[str, Node], *, where: str = "parameters") -> dict[str, Any]:
    """The JSON Schema of a tool's arguments: keys `type`, `properties`, and `required` where not empty.

    Raises:
        JsonSchemaError: a node is not of this language, or the result leaves the subset.
    """
    properties, required = _compile_properties(parameters, where, 0)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    check_schema(schema, where=where)
    return schema


def compile_schema(node: Node, *, where: str = "schema") -> dict[str, Any]:
    """The JSON Schema of one value, for outputs. A plain schema of the subset compiles to itself.

    Raises:
        JsonSchemaError: as above, or an object does not say `additionalProperties`.
    """
    schema = _compile(node, where, 0)
    check_schema(schema, where=where)
    return schema


def _compile_properties(declared: Any, where: str, depth: int) -> tuple[dict[str, Any], list[str]]:
    if not isinstance(declared, Mapping):
        raise JsonSchemaError(["properties must map names to schemas"], where=where)
    properties = {key: _compile(node, f"{where}.{key}", depth + 1) for key, node in declared.items()}
    return properties, [key for key, node in declared.items() if node.get("required") is True]


def _compile(node: Any, where: str, depth: int) -> dict[str, Any]:
    if not isinstance(node, Mapping):
        raise JsonSchemaError(["must be a mapping"], where=where)
    if depth > MAX_DEPTH:
        raise JsonSchemaError([f"is nested more than {MAX_DEPTH} levels deep"], where=where)
    if node.get("type") == "object" and "additionalProperties" not in node:
        raise JsonSchemaError(["an object must say additionalProperties: True or False"], where=where)
    schema: dict[str, Any] = {}
    for key, value in node.items():
        if key == "required" and isinstance(value, bool):
            continue
        if key == "type" and value == "json":
            continue
        if key == "properties":
            schema[key], required = _compile_properties(value, where, depth)
            if required:
                schema["required"] = required
        elif key == "items":
            schema[key] = _compile(value, f"{where}.items", depth + 1)
        elif key == "oneOf" and isinstance(value, list | tuple):
            schema[key] = [
                _compile(branch, f"{where}.oneOf[{at}]", depth + 1) for at, branch in enumerate(value)
            ]
        else:
            schema[key] = value
    return schema
