"""Config schemas: a msgspec struct judges what a row says, in the words of `spec/kernel.md` §9.

Absent and null are judged alike: where the field's type does not admit null, a null counts as absent,
so the default applies or `missing required value` is reported. Nothing is coerced. A key that no field
has is an error, or is left out where the caller wants to be told instead. Values are never printed, since
they may be secrets; what a struct's own code says is told without those that are marked.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from dsh.errors import CompositionError
from dsh.kernel.foreign import contained
from dsh.kernel.secret import told_without
from dsh.kernel.shape import (
    admits_null,
    fields_of,
    item_kind,
    kind_at,
    members,
    rejects_by_itself,
    value_kind,
    words_of,
)

S = TypeVar("S", bound=msgspec.Struct)
UnknownKey = Callable[[str, str, str], None]
"""Called with the dotted place of the map that holds the key (empty for the root), the key, and a hint."""


class ValidationError(CompositionError):
    """A config does not fit its schema. `path` is the dotted place, empty for the root."""

    def __init__(self, problem: str, path: str = "", *, unknown: str = "", hint: str = "") -> None:
        self.problem = problem
        self.path = path
        self.unknown = unknown
        """The key there that no field has, if that is what does not fit."""
        super().__init__(f"invalid config:\n  - {problem}" + (f" (at {path})" if path else ""), hint=hint)


def resolve_config(schema: type[S], raw: Any, on_unknown: UnknownKey | None = None) -> S:
    """Turn what a row says (JSON data, `None` for nothing) into the plugin's struct.

    Args:
        on_unknown: told of each key that no field has, which is then left out; without it such a key is
            an error. Its arguments: `(path, key, hint)`.

    Raises:
        ValidationError: the first thing that does not fit, with its place.
    """
    try:
        cleaned = _cleaned(schema, {} if raw is None else raw, "", on_unknown)
        return msgspec.convert(cleaned, schema, strict=True)
    except msgspec.ValidationError as error:
        raise _translated(error, schema, cleaned) from None
    except ValidationError:
        raise
    except ValueError as error:  # raised by a struct's own __post_init__
        raise ValidationError(told_without(str(error), raw, schema)) from None
    except (TypeError, NameError) as error:  # a type that msgspec does not know, or nobody
        raise ValidationError(f"the plugin's Config is no schema: {error}") from None
    except BaseException as error:  # what a struct's own code may raise
        raise contained(error, "the plugin's Config") from None


def simplify(config: msgspec.Struct) -> dict[str, Any]:
    """The config as JSON data, without what equals the default: what is written back to a file.

    Resolving the result gives an equal config.
    """
    data: dict[str, Any] = {}
    for field in msgspec.structs.fields(config):
        value = getattr(config, field.name)
        if field.default is not msgspec.NODEFAULT and value == field.default:
            continue
        if field.default_factory is not msgspec.NODEFAULT and value == field.default_factory():
            continue
        data[field.encode_name] = (
            simplify(value)
            if isinstance(value, msgspec.Struct) and not value.__struct_config__.tag
            else msgspec.to_builtins(value)
        )
    return data


def _cleaned(kind: Any, value: Any, path: str, on_unknown: UnknownKey | None) -> Any:
    """Drop null entries where the field has no null, and unknown keys if somebody wants to be told."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValidationError("expected a finite number", path)
    if isinstance(value, Mapping) and not value:
        return {}  # most rows say nothing, and to read the types of a struct takes long
    if isinstance(value, Mapping) and (fields := fields_of(kind, value)) is not None:
        kept = {}
        for key, item in value.items():
            if key not in fields:
                _tell_unknown(key, list(fields), path, on_unknown)
            elif item is not None or admits_null(fields[key]):
                kept[key] = _cleaned(fields[key], item, _below(path, key), on_unknown)
        return kept
    if isinstance(value, Mapping):
        inner = value_kind(kind)
        return {key: _cleaned(inner, item, _below(path, key), on_unknown) for key, item in value.items()}
    if isinstance(value, list):
        return [
            _cleaned(item_kind(kind, at), item, _below(path, at), on_unknown) for at, item in enumerate(value)
        ]
    return value


def _tell_unknown(key: Any, known: list[str], path: str, on_unknown: UnknownKey | None) -> None:
    name, hint = str(key), _meant(str(key), known)
    if on_unknown is None:
        raise ValidationError(f"unknown key {name!r}", path, unknown=name, hint=hint)
    on_unknown(path, name, hint)


def _below(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


_NAMES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}


def _translated(error: msgspec.ValidationError, schema: Any, raw: Any) -> ValidationError:
    text, _, place = str(error).partition(" - at `")
    path = place.rstrip("`").removeprefix("$").replace("[...]", ".*").replace("[", ".").replace("]", "")
    path = _exact(schema, raw, path.removeprefix("."))
    if found := re.match(r"Object missing required field `(.+)`", text):
        return ValidationError("missing required value", f"{path}.{found[1]}".lstrip("."))
    if text.startswith("Invalid enum value"):
        words = [str(word) for m in members(kind_at(schema, path)) for word in words_of(m)]
        return ValidationError(
            f"expected {' | '.join(words)}" if words else "not one of the words known", path
        )
    if found := re.match(r"Expected `(.+?)`( [<>]=? \S+)?, got `(.+)`", text):
        expected = " | ".join(_name(part) for part in found[1].split(" | "))
        return ValidationError(f"expected {expected}{found[2] or ''} but got {_name(found[3])}", path)
    said = re.sub(r"^Expected `(\w+)`", lambda kind: f"expected {_name(kind[1])}", text)
    return ValidationError(told_without(said[:1].lower() + said[1:], raw, schema), path)


def _exact(schema: Any, raw: Any, path: str) -> str:
    """The path with the key of a map in place of each `*`: the first whose value is refused by itself."""
    steps = path.split(".") if path else []
    kind, value = schema, raw
    for at, step in enumerate(steps):
        if step == "*" and isinstance(value, Mapping):
            inner = value_kind(kind)
            step = next((key for key, item in value.items() if rejects_by_itself(inner, item)), step)
            steps[at] = str(step)
        kind = kind_at(kind, str(step))
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            value = None
    return ".".join(steps)


def _meant(word: str, known: list[str]) -> str:
    from difflib import get_close_matches

    if found := get_close_matches(word, known, n=1):
        return f"did you mean {found[0]!r}?"
    return f"known keys: {', '.join(known)}" if known else "there are no keys"


def _name(kind: str) -> str:
    return _NAMES.get(kind, kind)
