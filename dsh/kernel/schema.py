"""Config schemas: a msgspec struct judges what a row says, in the words of `spec/kernel.md` §9.

Absent and null are judged alike: where the field's type does not admit null, a null counts as absent,
so the default applies or `missing required value` is reported. Nothing is coerced; unknown keys are
an error unless the struct allows them. Values are never printed, since they may be secrets.
"""

import re
import types
from collections.abc import Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from dsh.errors import CompositionError

S = TypeVar("S", bound=msgspec.Struct)


class ValidationError(CompositionError):
    """A config does not fit its schema. `path` is the dotted place, empty for the root."""

    def __init__(self, problem: str, path: str = "") -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"invalid config:\n  - {problem}" + (f" (at {path})" if path else ""))


def resolve_config(schema: type[S], raw: Any) -> S:
    """Turn what a row says (JSON data, `None` for nothing) into the plugin's struct.

    Raises:
        ValidationError: the first thing that does not fit, with its place.
    """
    try:
        return msgspec.convert(_without_nulls(schema, {} if raw is None else raw), schema, strict=True)
    except msgspec.ValidationError as error:
        raise _translated(error) from None
    except ValueError as error:  # raised by a struct's own __post_init__
        raise ValidationError(str(error)) from None


def _without_nulls(kind: Any, value: Any) -> Any:
    """Drop map entries that are null where the struct field has no null, at any depth."""
    struct = _struct_in(kind)
    if struct is not None and isinstance(value, Mapping):
        hints = get_type_hints(struct)
        fields = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(struct)}
        return {
            key: _without_nulls(fields.get(key), item)
            for key, item in value.items()
            if item is not None or key not in fields or _admits_null(fields[key])
        }
    if isinstance(value, list) and get_origin(kind) in (list, tuple):
        return [_without_nulls(get_args(kind)[0], item) for item in value]
    if isinstance(value, Mapping) and get_origin(kind) is dict:
        return {key: _without_nulls(get_args(kind)[1], item) for key, item in value.items()}
    return value


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _admits_null(kind: Any) -> bool:
    return any(member in (type(None), Any, object) for member in _members(kind))


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    structs = [m for m in _members(kind) if isinstance(m, type) and issubclass(m, msgspec.Struct)]
    return structs[0] if len(structs) == 1 else None


_NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def _translated(error: msgspec.ValidationError) -> ValidationError:
    text, _, place = str(error).partition(" - at `")
    path = place.rstrip("`").removeprefix("$").removeprefix(".").replace("[", ".").replace("]", "")
    if found := re.match(r"Object missing required field `(.+)`", text):
        return ValidationError("missing required value", f"{path}.{found[1]}".lstrip("."))
    if found := re.match(r"Object contains unknown field `(.+)`", text):
        return ValidationError(f"unknown key {found[1]!r}", path)
    if found := re.match(r"Expected `(.+?)`( [<>]=? \S+)?, got `(.+)`", text):
        expected = " | ".join(_name(part) for part in found[1].split(" | "))
        return ValidationError(f"expected {expected}{found[2] or ''} but got {_name(found[3])}", path)
    return ValidationError(text[:1].lower() + text[1:], path)


def _name(kind: str) -> str:
    return _NAMES.get(kind, kind)
