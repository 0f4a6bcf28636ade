"""What a schema's types say: which keys a struct takes, what the items of a list or map are."""

import functools
import types
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec


def members(kind: Any) -> tuple[Any, ...]:
    """The alternatives of a union, or the one type."""
    if get_origin(kind) is Annotated:
        return members(get_args(kind)[0])
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def admits_null(kind: Any) -> bool:
    """Whether null is a value of its own here."""
    return any(member in (type(None), Any, object) for member in members(kind))


def words_of(kind: Any) -> tuple[Any, ...]:
    """The values of a `Literal`."""
    return get_args(kind) if get_origin(kind) is Literal else ()


def fields_of(kind: Any, value: Mapping[Any, Any] | None = None) -> dict[str, Any] | None:
    """The keys that a struct type takes, with their types; None where no struct, or which one, can be told.

    Args:
        value: what is to become the struct: its tag decides between several.
    """
    structs = [m for m in members(kind) if isinstance(m, type) and issubclass(m, msgspec.Struct)]
    if len(structs) > 1 and value is not None:
        structs = [m for m in structs if value.get(_tag_field(m)) == m.__struct_config__.tag]
    return struct_fields(structs[0]) if len(structs) == 1 else None


def _tag_field(struct: type[msgspec.Struct]) -> str:
    return struct.__struct_config__.tag_field or "type"


@functools.lru_cache(maxsize=512)
def struct_fields(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The keys that a struct takes, its tag too, with their types as they are written."""
    hints = get_type_hints(struct, include_extras=True)
    fields = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(struct)}
    if struct.__struct_config__.tag is not None:
        fields.setdefault(_tag_field(struct), Any)
    return fields


def value_kind(kind: Any) -> Any:
    """The type of a map's values; `Any` where it is no map."""
    for member in members(kind):
        arguments = get_args(member)
        if _is_map(get_origin(member)) and len(arguments) == 2:
            return arguments[1]
    return Any


def item_kind(kind: Any, position: int) -> Any:
    """The type of a list's item at a position; `Any` where it is no list."""
    for member in members(kind):
        origin, arguments = get_origin(member), get_args(member)
        if origin is tuple and arguments and arguments[-1] is not ...:
            return arguments[position] if position < len(arguments) else Any
        if arguments and isinstance(origin, type) and not _is_map(origin) and origin is not type:
            return arguments[0]
    return Any


def _is_map(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)


def kind_at(kind: Any, path: str) -> Any:
    """The type at a place of a schema, None where it cannot be told."""
    for key in filter(None, path.split(".")):
        fields = fields_of(kind) or {}
        if key in fields:
            kind = fields[key]
            continue
        inner = item_kind(kind, int(key)) if key.isdigit() else Any
        kind = value_kind(kind) if inner is Any else inner
        if kind is Any:
            return None
    return kind


def rejects_by_itself(kind: Any, value: Any) -> bool:
    """Whether a value does not fit a type."""
    try:
        msgspec.convert(value, kind, strict=True)
    except (msgspec.ValidationError, ValueError):
        return True
    return False
