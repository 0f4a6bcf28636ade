"""Config schemas: a msgspec struct judges what a row says, in the words of `spec/kernel.md` §9.

Absent and null are judged alike: where the field's type does not admit null, a null counts as absent,
so the default applies or `missing required value` is reported. Nothing is coerced; unknown keys are
an error unless the struct allows them. Values are never printed, since they may be secrets.
"""

import re
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from dsh.errors import CompositionError

S = TypeVar("S", bound=msgspec.Struct)


class ValidationError(CompositionError):
    """A config does not fit its schema. `path` is the dotted place, empty for the root."""

    def __init__(self, problem: str, path: str = "", *, unknown: str = "", hint: str = "") -> None:
        self.problem = problem
        self.path = path
        self.unknown = unknown
        """The key there that no field has, if that is what does not fit."""
        super().__init__(f"invalid config:\n  - {problem}" + (f" (at {path})" if path else ""), hint=hint)


def resolve_config(schema: type[S], raw: Any) -> S:
    """Turn what a row says (JSON data, `None` for nothing) into the plugin's struct.

    Raises:
        ValidationError: the first thing that does not fit, with its place.
    """
    try:
        return msgspec.convert(_without_nulls(schema, {} if raw is None else raw), schema, strict=True)
    except msgspec.ValidationError as error:
        raise _translated(error, schema) from None
    except ValueError as error:  # raised by a struct's own __post_init__
        raise ValidationError(str(error)) from None


def _without_nulls(kind: Any, value: Any) -> Any:
    """Drop map entries that are null where the struct field has no null, at any depth."""
    if isinstance(value, Mapping) and (fields := _fields_of(kind)):
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


def _translated(error: msgspec.ValidationError, schema: Any) -> ValidationError:
    text, _, place = str(error).partition(" - at `")
    path = place.rstrip("`").removeprefix("$").replace("[...]", ".*").replace("[", ".").replace("]", "")
    path = path.removeprefix(".")
    if found := re.match(r"Object missing required field `(.+)`", text):
        return ValidationError("missing required value", f"{path}.{found[1]}".lstrip("."))
    if found := re.match(r"Object contains unknown field `(.+)`", text):
        known = _fields_of(_kind_at(schema, path))
        return ValidationError(
            f"unknown key {found[1]!r}", path, unknown=found[1], hint=_meant(found[1], list(known))
        )
    if text.startswith("Invalid enum value"):
        words = [str(word) for m in _members(_kind_at(schema, path)) for word in _words(m)]
        return ValidationError(
            f"expected {' | '.join(words)}" if words else "not one of the words known", path
        )
    if found := re.match(r"Expected `(.+?)`( [<>]=? \S+)?, got `(.+)`", text):
        expected = " | ".join(_name(part) for part in found[1].split(" | "))
        return ValidationError(f"expected {expected}{found[2] or ''} but got {_name(found[3])}", path)
    return ValidationError(text[:1].lower() + text[1:], path)


def _fields_of(kind: Any) -> dict[str, Any]:
    """The keys that a struct type takes, with their types; none for another type."""
    struct = _struct_in(kind)
    if struct is None:
        return {}
    hints = get_type_hints(struct)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(struct)}


def _kind_at(kind: Any, path: str) -> Any:
    """The type at a place of a schema, None where it cannot be told."""
    for key in filter(None, path.split(".")):
        fields = _fields_of(kind)
        if key in fields:
            kind = fields[key]
            continue
        holders = [get_args(m) for m in _members(kind) if get_origin(m) in (list, tuple, dict)]
        if not holders:
            return None
        kind = holders[0][-1 if holders[0][-1] is not ... else 0]
    return kind


def _words(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) is Literal else ()


def _meant(word: str, known: list[str]) -> str:
    from difflib import get_close_matches

    if found := get_close_matches(word, known, n=1):
        return f"did you mean {found[0]!r}?"
    return f"known keys: {', '.join(known)}" if known else "there are no keys"


def _name(kind: str) -> str:
    return _NAMES.get(kind, kind)
