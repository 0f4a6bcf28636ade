"""The keys that a plugin's `Config` takes: name, type, default, meaning."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from msgspec import inspect as kinds

from docs.generate.source import field_docs

REQUIRED, ABSENT, BELOW = "required", "absent", "the keys below"
"""Words in the place of a default."""


class Key(NamedTuple):
    """One key of a config."""

    path: str
    """With its place in the config: `presets.NAME.sandbox`."""
    kind: str
    default: str
    """As JSON, without what is default inside of it; a word where that would say nothing."""
    meaning: str


def keys_of(schema: type[msgspec.Struct]) -> list[Key]:
    """Every key, nested ones behind the key that holds them."""
    return list(_keys(schema, ""))


def _keys(schema: type[msgspec.Struct], prefix: str) -> Iterator[Key]:
    described = kinds.type_info(schema)
    if isinstance(described, kinds.DictType):
        for suffix, nested in _structs(described):
            yield from _keys(nested, f"{prefix}{suffix.removeprefix('.')}.")
        return
    docs = field_docs(schema)
    assert isinstance(described, kinds.StructType)
    for field in described.fields:
        path = prefix + field.encode_name
        yield Key(path, kind_in_words(field.type), _default(field), docs.get(field.name, ""))
        for suffix, nested in _structs(field.type):
            yield from _keys(nested, f"{path}{suffix}.")


def _default(field: kinds.Field) -> str:
    if field.required:
        return REQUIRED
    value = field.default
    if value is msgspec.NODEFAULT:
        value = field.default_factory() if callable(field.default_factory) else None
    if value is msgspec.UNSET:
        return ABSENT
    if isinstance(value, msgspec.Struct):
        return BELOW
    return json.dumps(_told(value), ensure_ascii=False)


def _told(value: Any) -> Any:
    """Plain data, without the keys of structs that hold their defaults."""
    match value:
        case msgspec.Struct():
            named = {field.encode_name: field for field in msgspec.structs.fields(type(value))}
            held = {key: getattr(value, field.name) for key, field in named.items()}
            return {k: _told(v) for k, v in held.items() if v is not None and v != named[k].default}
        case dict():
            return {key: _told(item) for key, item in value.items()}
        case list() | tuple():
            return [_told(item) for item in value]
    return msgspec.to_builtins(value)


def kind_in_words(kind: kinds.Type) -> str:
    """A type in words."""
    match kind:
        case kinds.Metadata(type=inner):
            return kind_in_words(inner)
        case kinds.UnionType(types=members):
            named = [kind_in_words(member) for member in members if not isinstance(member, kinds.NoneType)]
            return " or ".join(named)
        case kinds.LiteralType(values=words):
            return " \u00b7 ".join(f"`{word}`" for word in words)
        case kinds.EnumType(cls=words):
            return " \u00b7 ".join(f"`{word.value}`" for word in words)
        case kinds.IntType() | kinds.FloatType():
            return ("integer" if isinstance(kind, kinds.IntType) else "number") + _range(kind)
        case kinds.StrType(min_length=least):
            return "text, not empty" if least else "text"
        case kinds.BoolType():
            return "`true` \u00b7 `false`"
        case kinds.ListType(item_type=item) | kinds.VarTupleType(item_type=item):
            return f"list of {kind_in_words(item)}"
        case kinds.DictType(value_type=item):
            return f"mapping of names to {kind_in_words(item)}"
        case kinds.StructType() | kinds.TypedDictType():
            return "mapping"
        case kinds.CustomType(cls=cls):
            return str(cls.__name__)
    return "any"


def _range(kind: kinds.IntType | kinds.FloatType) -> str:
    least = kind.ge if kind.ge is not None else kind.gt
    most = kind.le if kind.le is not None else kind.lt
    if least is None and most is None:
        return ""
    above = "" if least is None else f"{'from' if kind.ge is not None else 'above'} {least:,}"
    if most is None or most == 2**53 - 1:
        return f" {above}"
    return f" {above}{' ' if above else ''}{'to' if kind.le is not None else 'below'} {most:,}"


def _structs(kind: kinds.Type) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    match kind:
        case kinds.Metadata(type=inner):
            yield from _structs(inner)
        case kinds.UnionType(types=members):
            for member in members:
                yield from _structs(member)
        case kinds.StructType(cls=cls):
            yield "", cls
        case kinds.ListType(item_type=item) | kinds.VarTupleType(item_type=item):
            yield from ((f"[]{suffix}", cls) for suffix, cls in _structs(item))
        case kinds.DictType(value_type=item):
            yield from ((f".NAME{suffix}", cls) for suffix, cls in _structs(item))
